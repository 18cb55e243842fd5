// Command payments books each payment of a Kafka topic once, with a handler that takes one message at a time. A payment
// for an account that is not there yet waits for it, and only those of the same key wait for that; one that is no JSON
// will never be booked, and is put aside at once.
//
//	DATABASE_URL=postgres://… KAFKA_BROKERS=localhost:9092 go run ./docs/examples/payments
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/migrations"
)

const tables = `create table if not exists accounts (name text primary key, cents bigint not null default 0)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	kafka := consumer.Connection{Brokers: strings.Split(os.Getenv("KAFKA_BROKERS"), ",")}
	if err := run(ctx, os.Getenv("DATABASE_URL"), kafka); err != nil {
		slog.Error("payments", "error", err)
		os.Exit(1)
	}
}

// run consumes until ctx ends.
func run(ctx context.Context, dsn string, kafka consumer.Connection) error {
	if _, err := migrations.Up(ctx, dsn, migrations.Config{}); err != nil {
		return err
	}
	pool, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "payments"})
	if err != nil {
		return err
	}
	var registry handlers.Registry
	if err := registry.Register("book", handlers.Each(handlers.JSON(book)), "payments"); err != nil {
		return err
	}
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	if err != nil {
		return err
	}
	return consumer.Run(ctx, consumer.Config{Connection: kafka, Group: "payments"}, processor)
}

func open(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	conf, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	dedup.PreparePool(conf, 0)
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, tables)
	return pool, err
}

type payment struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// book adds a payment to its account. What it does through tx is done once for a message ID.
func book(ctx context.Context, tx pgx.Tx, _ dedup.Message, p payment) error {
	tag, err := tx.Exec(ctx, `update accounts set cents = cents + $2 where name = $1`, p.Account, p.Cents)
	if err == nil && tag.RowsAffected() == 0 {
		return errors.New("no such account") // nil would say that it is booked
	}
	return err
}
