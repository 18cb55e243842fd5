package sender_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/sender"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// What a transaction has added becomes a record of Kafka once it has committed.
func Example() {
	t := new(deduptest.Example) // a *testing.T in a test
	defer t.End()
	addr, db := consumertest.NewFake(t).Addr, deduptest.New(t)
	consumertest.CreateTopic(t, addr, "parcels", 1)

	kafka, err := sender.New(consumer.Connection{Brokers: []string{addr}})
	if err != nil {
		panic(err)
	}
	defer kafka.Close()
	ctx, cancel := context.WithCancel(context.Background())
	pool := deduptest.OpenPool(t, db.DSN, func(c *pgxpool.Config) { c.MaxConns = 12 })
	relay, err := outbox.New(ctx, outbox.Config{Pool: pool, Logger: slog.New(slog.DiscardHandler),
		Destinations: []outbox.Destination{{Name: "kafka", Topics: []string{"parcels"}, Sender: kafka}}})
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); relay.Run(ctx) }()

	var writer outbox.Writer
	tx, err := db.Pool.Begin(ctx)
	if err != nil {
		panic(err)
	}
	added, err := writer.Add(ctx, tx, outbox.Message{Topic: "parcels", Key: []byte("o-17"), Value: []byte("ship it"),
		IdempotencyKey: "order o-17 shipped"})
	fmt.Println(added.ID, added.AlreadyExisted, err)
	fmt.Println(tx.Commit(ctx))
	relay.Wake()

	for relay.Processor().Totals().Handled == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(consumertest.EndOffset(t, addr, "parcels", 0), "record")
	cancel()
	<-done
	// Output:
	// c05b0b72-3f73-802f-9cdc-8400eef7b9e9 false <nil>
	// <nil>
	// 1 record
}
