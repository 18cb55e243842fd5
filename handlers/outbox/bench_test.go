package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// plain is the table that people make by hand.
const plain = `create table plain (id bigint generated always as identity primary key,
	created_at timestamptz not null default now(), topic text not null, key bytea, headers bytea, payload bytea,
	tenant text not null default '', idempotency_key uuid not null, unique (tenant, idempotency_key))`

func benchmark(b *testing.B) (*pgx.Conn, outbox.Message) {
	b.Helper()
	db := deduptest.New(b)
	conn, err := pgx.Connect(context.Background(), db.DSN)
	if err == nil {
		_, err = conn.Exec(context.Background(), plain)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn, outbox.Message{Topic: "t", Key: []byte("o-17"), Value: make([]byte, 300)}
}

// Each in a transaction that does nothing else; what it takes beside begin and commit is measured.
func BenchmarkAdd(b *testing.B) {
	conn, m := benchmark(b)
	ctx := context.Background()
	for name, add := range map[string]func(tx pgx.Tx, i int) error{
		"plain insert": func(tx pgx.Tx, i int) error {
			_, err := tx.Exec(ctx, `insert into plain (topic, key, payload, idempotency_key)
				values ($1, $2, $3, gen_random_uuid())`, m.Topic, m.Key, m.Value)
			return err
		},
		"keyed": func(tx pgx.Tx, i int) error {
			m := m
			m.IdempotencyKey = fmt.Sprint("key ", i, b.N, time.Now().UnixNano())
			_, err := writer.Add(ctx, tx, m)
			return err
		},
		"without key": func(tx pgx.Tx, i int) error { _, err := writer.Add(ctx, tx, m); return err },
	} {
		b.Run(name, func(b *testing.B) {
			tx, err := conn.Begin(ctx)
			for i := 0; i < b.N && err == nil; i++ {
				err = add(tx, i)
			}
			if err == nil {
				err = tx.Commit(ctx)
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkAddAll(b *testing.B) {
	conn, m := benchmark(b)
	ctx := context.Background()
	const n = 1000
	for name, add := range map[string]func() error{
		"copy": func() error {
			rows := make([][]any, n)
			for i := range rows {
				rows[i] = []any{m.Topic, m.Key, m.Value, uuid.New()}
			}
			_, err := conn.CopyFrom(ctx, pgx.Identifier{"plain"}, []string{"topic", "key", "payload", "idempotency_key"},
				pgx.CopyFromRows(rows))
			return err
		},
		"keyed": func() error {
			ms := make([]outbox.Message, n)
			for i := range ms {
				ms[i] = m
				ms[i].IdempotencyKey = fmt.Sprint("key ", i, time.Now().UnixNano())
			}
			_, err := writer.AddAll(ctx, conn, ms)
			return err
		},
		"without key": func() error {
			ms := make([]outbox.Message, n)
			for i := range ms {
				ms[i] = m
			}
			_, err := writer.AddAll(ctx, conn, ms)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if err := add(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A relay whose destination costs nothing.
func BenchmarkRelay(b *testing.B) {
	db := deduptest.New(b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool := deduptest.OpenPool(b, db.DSN, func(c *pgxpool.Config) { c.MaxConns = 12 })
	const n = 100_000
	for range n / 1000 {
		ms := make([]outbox.Message, 1000)
		for i := range ms {
			ms[i] = outbox.Message{Topic: "t", Key: fmt.Append(nil, i), Value: make([]byte, 300)}
		}
		if _, err := writer.AddAll(ctx, pool, ms); err != nil {
			b.Fatal(err)
		}
	}
	relay, err := outbox.New(ctx, outbox.Config{Pool: pool, Logger: slog.New(slog.DiscardHandler),
		Destinations: []outbox.Destination{{Name: "nowhere", Topics: []string{"t"},
			Sender: outbox.Func(func(context.Context, dedup.Message) error { return nil })}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	began := time.Now()
	done := make(chan struct{})
	go func() { defer close(done); relay.Run(ctx) }()
	for relay.Processor().Totals().Handled < n {
		time.Sleep(5 * time.Millisecond)
	}
	b.ReportMetric(n/time.Since(began).Seconds(), "messages/s")
	cancel()
	<-done
}
