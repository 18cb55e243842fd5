package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/handlertest"
	"github.com/firstseen/firstseen/migrations"
)

// A batch with a message and its copy pays once. The consumer package takes batches from Kafka; here it is made by
// hand.
func ExampleProcessor() {
	withDatabase(func(ctx context.Context, pool *pgxpool.Pool, store *dedup.Store) error {
		var registry handlers.Registry
		pay := handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			_, err := tx.Exec(ctx, `insert into payments (id, amount) values ($1, $2)`, m.ID, string(m.Value))
			return err
		})
		if err := registry.Register("pay", handlers.Each(pay), "payments"); err != nil {
			return err
		}
		processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
		if err != nil {
			return err
		}
		m := dedup.Message{ID: uuid.New(), Topic: "payments", Value: []byte("12.30")}
		result, err := processor.Process(ctx, handlers.Batch{Messages: []dedup.Message{m, m}})
		fmt.Printf("%+v\n", result)
		return err
	})
	// Output: {New:1 Duplicates:1 Parked:0 Dead:0 Conflicts:0 Buried:0}
}

// A handler in SQL: the function is called once a message, all calls of a batch in one statement.
func ExampleNewSQL() {
	withDatabase(func(ctx context.Context, pool *pgxpool.Pool, store *dedup.Store) error {
		_, err := pool.Exec(ctx, `
			create function on_payment(m firstseen.message) returns void language sql as $$
				insert into payments (id, amount)
				values (m.id, firstseen.body(m) ->> 'amount' || ' ' || firstseen.header(m, 'currency'))
			$$`)
		if err != nil {
			return err
		}
		pay, err := handlers.NewSQL(ctx, pool, "", "on_payment")
		if err != nil {
			return err
		}
		var registry handlers.Registry
		if err := registry.Register("pay", pay, "payments"); err != nil {
			return err
		}
		processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
		if err != nil {
			return err
		}
		_, err = processor.Process(ctx, handlers.Batch{Messages: []dedup.Message{{ID: uuid.New(), Topic: "payments",
			Value: []byte(`{"amount": "12.30"}`), Headers: []dedup.Header{{Key: "currency", Value: []byte("EUR")}}}}})
		if err != nil {
			return err
		}
		var amount string
		err = pool.QueryRow(ctx, `select amount from payments`).Scan(&amount)
		fmt.Println(amount)
		return err
	})
	// Output: 12.30 EUR
}

// withDatabase stands for what a program has anyway: a Postgres with firstseen's schema and a table of its own.
func withDatabase(use func(context.Context, *pgxpool.Pool, *dedup.Store) error) {
	if err := tryDatabase(use); err != nil {
		fmt.Println(err)
	}
}

func tryDatabase(use func(context.Context, *pgxpool.Pool, *dedup.Store) error) error {
	ctx := context.Background()
	server, err := pgserver.Start(ctx, pgserver.Config{})
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := migrations.Up(ctx, server.DSN("postgres"), migrations.Config{}); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, server.DSN("postgres"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `create table payments (id uuid, amount text)`); err != nil {
		return err
	}
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "payments"})
	if err != nil {
		return err
	}
	return use(ctx, pool, store)
}

// payment is what the messages of a topic hold.
type payment struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

func book(ctx context.Context, tx pgx.Tx, m dedup.Message, p payment) error {
	currency := string(m.Header("currency"))
	if currency == "" {
		return handlers.Permanent(errors.New("no currency")) // trying again is no use
	}
	_, err := tx.Exec(ctx, `insert into payments (id, amount) values ($1, $2)`, m.ID,
		fmt.Sprintf("%d %s for %s", p.Amount, currency, p.Account))
	return err
}

// A handler of payments in JSON, and one message through it, without Kafka: this is how to test one.
func ExampleJSON() {
	t := new(deduptest.Example) // a *testing.T in a test
	defer t.End()
	pool := deduptest.New(t).Pool
	_, err := pool.Exec(context.Background(), `create table payments (id uuid, amount text)`)
	fmt.Println(err)

	booking := handlers.Each(handlers.Logged(handlers.JSON(book), slog.Default()))
	euros := []dedup.Header{{Key: "currency", Value: []byte("EUR")}}
	for _, m := range []dedup.Message{
		{Value: []byte(`{"account": "alice", "amount": 12}`), Headers: euros},
		{Value: []byte(`{"account": "alice", "amount": 12}`)},
		{Value: []byte(`{"account": "alice", "amount": "12"}`), Headers: euros},
	} {
		err := handlertest.Handle(t, pool, booking, m)
		fmt.Println(handlers.ReasonOf(err), err)
	}
	var booked string
	err = pool.QueryRow(context.Background(), `select amount from payments`).Scan(&booked)
	fmt.Println(booked, err)
	// Output:
	// <nil>
	//  <nil>
	// permanent message test/0@0: no currency
	// undecodable message test/0@0: read JSON: string at "/amount", want int64
	// 12 EUR for alice <nil>
}

// A middleware of your own is a function from handler to handler.
func ExampleHandlerFunc() {
	skipTests := func(next handlers.Handler) handlers.Handler {
		return handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			if string(m.Header("environment")) == "test" {
				return nil
			}
			return next.Handle(ctx, tx, m)
		})
	}
	h := skipTests(handlers.HandlerFunc(func(_ context.Context, _ pgx.Tx, m dedup.Message) error {
		fmt.Println(string(m.Value))
		return nil
	}))
	for _, environment := range []string{"test", "live"} {
		m := dedup.Message{Value: []byte(environment),
			Headers: []dedup.Header{{Key: "environment", Value: []byte(environment)}}}
		if err := h.Handle(context.Background(), nil, m); err != nil {
			fmt.Println(err)
		}
	}
	// Output: live
}
