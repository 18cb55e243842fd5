// Command readings keeps what sensors measure: many small messages, so its handler takes all new messages of a batch at
// once and writes them by one statement. Message IDs are made of the sensor and the time in the payload, for the sensors send
// none.
//
//	DATABASE_URL=postgres://… KAFKA_BROKERS=localhost:9092 go run ./docs/examples/readings
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/migrations"
)

const tables = `create table if not exists readings (sensor text, at timestamptz, celsius float8)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), strings.Split(os.Getenv("KAFKA_BROKERS"), ",")); err != nil {
		slog.Error("readings", "error", err)
		os.Exit(1)
	}
}

// run consumes until ctx ends.
func run(ctx context.Context, dsn string, brokers []string) error {
	if _, err := migrations.Up(ctx, dsn, migrations.Config{}); err != nil {
		return err
	}
	pool, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	processor, err := newProcessor(ctx, pool)
	if err != nil {
		return err
	}
	source, err := identity.ParseSource("hash:/sensor,/at")
	if err != nil {
		return err
	}
	rule, err := identity.NewRule(source)
	if err != nil {
		return err
	}
	return consumer.Run(ctx, consumer.Config{
		Connection: consumer.Connection{Brokers: brokers},
		Group:      "readings",
		Topics:     []consumer.Topic{{Name: "readings", Identity: rule}},
	}, processor)
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

func newProcessor(ctx context.Context, pool *pgxpool.Pool) (*handlers.Processor, error) {
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "readings"})
	if err != nil {
		return nil, err
	}
	var registry handlers.Registry
	if err := registry.Register("keep", handlers.BatchHandlerFunc(keep), "readings"); err != nil {
		return nil, err
	}
	return handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
}

type reading struct {
	Sensor  string    `json:"sensor"`
	At      time.Time `json:"at"`
	Celsius float64   `json:"celsius"`
}

// keep writes a batch of readings. An error that says which message it is about, as that of Decode does, puts this one
// aside, and the others are given again.
func keep(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
	sensors, times, celsius := make([]string, len(ms)), make([]time.Time, len(ms)), make([]float64, len(ms))
	for i, m := range ms {
		r, err := handlers.Decode(handlers.JSONDecoder[reading]{}, m)
		if err != nil {
			return err
		}
		sensors[i], times[i], celsius[i] = r.Sensor, r.At, r.Celsius
	}
	_, err := tx.Exec(ctx, `insert into readings select * from unnest($1::text[], $2::timestamptz[], $3::float8[])`,
		sensors, times, celsius)
	return err
}
