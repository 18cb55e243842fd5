package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

// bookPayment is the effect. It commits together with the message's ID, or not at all.
func bookPayment(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	const book = `update accounts set balance = balance + $2::int where name = $1`
	tag, err := tx.Exec(ctx, book, string(m.Key), string(m.Value))
	if err == nil && tag.RowsAffected() == 0 {
		return errors.New("no such account") // nil would say that the message is done
	}
	return err
}

// run books each payment of a topic once, until ctx ends.
func run(ctx context.Context, pool *pgxpool.Pool, broker string) error {
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "billing"})
	if err != nil {
		return err
	}
	var registry handlers.Registry
	book := handlers.Each(handlers.HandlerFunc(bookPayment))
	if err := registry.Register("book-payment", book, "payments"); err != nil {
		return err
	}
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	if err != nil {
		return err
	}
	kafka := consumer.Connection{Brokers: []string{broker}}
	return consumer.Run(ctx, consumer.Config{Connection: kafka, Group: "billing"}, processor)
}

func Example() {
	t := new(deduptest.Example)
	defer t.End()
	pool, broker := deduptest.New(t).Pool, consumertest.NewFake(t).Addr // a program connects to its own
	consumertest.CreateTopic(t, broker, "payments", 1)
	_, err := pool.Exec(context.Background(),
		`create table accounts (name text, balance int); insert into accounts values ('alice', 0)`)
	if err != nil {
		panic(err)
	}

	// A payment for nobody waits for the account, and nothing waits for it.
	lost := []kgo.RecordHeader{{Key: "message-id", Value: []byte("payment-4710")}}
	consumertest.Produce(t, broker,
		&kgo.Record{Topic: "payments", Key: []byte("bob"), Value: []byte("7"), Headers: lost})

	// The producer, unsure whether its first attempt arrived, sends the payment again.
	id := []kgo.RecordHeader{{Key: "message-id", Value: []byte("payment-4711")}}
	consumertest.Produce(t, broker, &kgo.Record{Topic: "payments", Key: []byte("alice"), Value: []byte("100"),
		Headers: id})
	consumertest.Produce(t, broker, &kgo.Record{Topic: "payments", Key: []byte("alice"), Value: []byte("100"),
		Headers: id})

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- run(ctx, pool, broker) }()
	consumertest.AwaitCommitted(t, broker, "billing", "payments", 0, 3)
	cancel()
	if err := <-ended; err != nil {
		panic(err)
	}
	var balance int
	err = pool.QueryRow(context.Background(), `select balance from accounts where name = 'alice'`).Scan(&balance)
	var waiting string
	if err := pool.QueryRow(context.Background(),
		`select raw_id || ': ' || error from firstseen.parked`).Scan(&waiting); err != nil {
		panic(err)
	}
	fmt.Println("messages:", consumertest.EndOffset(t, broker, "payments", 0))
	fmt.Println("alice has:", balance, err)
	fmt.Println("to be tried again:", waiting)
	// Output:
	// messages: 3
	// alice has: 100 <nil>
	// to be tried again: payment-4710: handler book-payment: message payments/0@0: no such account
}
