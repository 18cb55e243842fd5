package outbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/handlertest"
	"github.com/firstseen/firstseen/handlers/outbox"
)

func ship(ctx context.Context, tx pgx.Tx, order string) error {
	if _, err := tx.Exec(ctx, `update orders set shipped = true where id = $1`, order); err != nil {
		return err
	}
	_, err := writer.Add(ctx, tx, outbox.Message{Topic: "parcels", Key: []byte(order), Value: []byte("ship " + order),
		IdempotencyKey: outbox.KeyOf("acme", "orders", order, "shipped", 1)})
	return err
}

// What is to be sent is added beside what is done. Done twice, it is sent once.
func ExampleWriter_Add() {
	t := new(deduptest.Example) // a *testing.T in a test
	defer t.End()
	pool := deduptest.New(t).Pool
	ctx := context.Background()
	_, err := pool.Exec(ctx, `create table orders (id text, shipped boolean)`)
	for range 2 {
		err = errors.Join(err, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return ship(ctx, tx, "o-17") }))
	}
	var waiting int
	err = errors.Join(err, pool.QueryRow(ctx, `select count(*) from firstseen.outbox`).Scan(&waiting))
	fmt.Println(waiting, err)
	// Output: 1 <nil>
}

type purchase struct {
	Order string `json:"order"`
}

// A handler of orders in JSON says what is to be sent.
func ExampleTyped() {
	t := new(deduptest.Example) // a *testing.T in a test
	defer t.End()
	pool := deduptest.New(t).Pool

	ship := outbox.Typed(new(outbox.Writer), handlers.JSONDecoder[purchase]{},
		func(_ context.Context, _ pgx.Tx, _ dedup.Message, p purchase) ([]outbox.Message, error) {
			return []outbox.Message{{Topic: "parcels", Key: []byte(p.Order), Value: []byte("ship " + p.Order)}}, nil
		})
	fmt.Println(handlertest.Handle(t, pool, handlers.Each(ship), dedup.Message{Value: []byte(`{"order": "o-17"}`)}))
	var added string
	err := pool.QueryRow(context.Background(), `select topic || ': ' || convert_from(payload, 'UTF8')
		from firstseen.outbox`).Scan(&added)
	fmt.Println(added, err)
	// Output:
	// <nil>
	// parcels: ship o-17 <nil>
}
