package consumer_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// BenchmarkEndToEnd compares firstseen with the consumer that people write by hand: kafka-go's Reader and, for each
// message, one transaction that inserts its ID and runs its INSERT, then the offset's commit. "ratio" is to the
// plain loop; "ratio-to-tuned" to one with a reader for each partition that commits offsets once a second. All read
// the same kind of topic from a real Kafka, 4 partitions, 300-byte payloads, into a Postgres with durable settings;
// the rounds alternate and joining the group counts for all.
//
//	go test ./consumer -run '^$' -bench EndToEnd -benchtime 1x
func BenchmarkEndToEnd(b *testing.B) {
	addr := consumertest.Kafka(b)
	server := deduptest.StartServer(b, pgserver.Config{Settings: map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "512MB",
		"max_wal_size": "4GB"}})
	db := deduptest.Migrated(b, server.DSN("postgres"))
	_, err := db.Pool.Exec(context.Background(), `create table bench_effects (id uuid, payload bytea);
		create table bench_seen (id uuid primary key)`)
	require.NoError(b, err)

	const ours, theirs, rounds = 60_000, 4_000, 5
	var fast, slow, eager []float64
	for range b.N {
		for range rounds {
			fast = append(fast, ours/benchFirstseen(b, addr, db.Pool, benchTopic(b, addr, ours), ours).Seconds())
			slow = append(slow,
				theirs/benchByHand(b, addr, db.Pool, benchTopic(b, addr, theirs), theirs, 1, 0).Seconds())
			eager = append(eager, theirs/benchByHand(b, addr, db.Pool, benchTopic(b, addr, theirs), theirs,
				benchPartitions, time.Second).Seconds())
		}
	}
	b.ReportMetric(median(fast), "firstseen-msg/s")
	b.ReportMetric(median(slow), "by-hand-msg/s")
	b.ReportMetric(median(fast)/median(slow), "ratio")
	b.ReportMetric(median(eager), "by-hand-tuned-msg/s")
	b.ReportMetric(median(fast)/median(eager), "ratio-to-tuned")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

const benchPartitions = 4

func benchTopic(b *testing.B, addr string, n int) string {
	b.Helper()
	topic := consumertest.Name(b)
	consumertest.CreateTopic(b, addr, topic, benchPartitions)
	rs := make([]*kgo.Record, n)
	for i := range rs {
		payload := make([]byte, 300)
		for j := range payload {
			payload[j] = byte(rand.Uint32())
		}
		rs[i] = &kgo.Record{Topic: topic,
			Partition: int32(i % benchPartitions), Key: fmt.Appendf(nil, "key-%d", i%1000), Value: payload,
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(uuid.NewString())}}}
	}
	consumertest.ProduceTo(b, addr, rs...)
	return topic
}

const benchEffect = `insert into bench_effects (id, payload) values ($1, $2)`

func benchFirstseen(b *testing.B, addr string, pool *pgxpool.Pool, topic string, n int) time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: topic})
	require.NoError(b, err)
	registry := &handlers.Registry{}
	require.NoError(b, registry.Register("bench", handlers.Queue(handlers.QueuedFunc(func(q *pgx.Batch,
		m dedup.Message) error {
		q.Queue(benchEffect, m.ID, m.Value)
		return nil
	})), topic))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry})
	require.NoError(b, err)
	c, err := consumer.New(consumer.Config{Connection: consumer.Connection{Brokers: []string{addr}}, Group: topic,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, processor)
	require.NoError(b, err)
	start := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for processed := 0; processed < n; wait.Sleep(ctx, 2*time.Millisecond) {
		require.NoError(b, pool.QueryRow(ctx,
			`select coalesce(sum(next_offset), 0)::int from firstseen.positions where consumer = $1`, topic).
			Scan(&processed))
	}
	took := time.Since(start)
	cancel()
	require.NoError(b, <-ended)
	return took
}

// benchByHand is the consumer that firstseen replaces.
func benchByHand(b *testing.B, addr string, pool *pgxpool.Pool, topic string, n, readers int,
	commitInterval time.Duration) time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var handled atomic.Int64
	done := make(chan error, readers)
	start := time.Now()
	for range readers {
		go func() {
			r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{addr}, GroupID: topic + "-by-hand",
				Topic: topic, MaxWait: 100 * time.Millisecond, CommitInterval: commitInterval,
				JoinGroupBackoff: 100 * time.Millisecond})
			defer func() { _ = r.Close() }()
			for {
				m, err := r.FetchMessage(ctx)
				if err == nil {
					err = handleByHand(ctx, pool, m)
				}
				if err == nil {
					err = r.CommitMessages(ctx, m)
				}
				if err != nil {
					done <- err
					return
				}
				if handled.Add(1) == int64(n) {
					done <- nil
					return
				}
			}
		}()
	}
	require.NoError(b, <-done)
	took := time.Since(start)
	cancel()
	for range readers - 1 {
		<-done
	}
	return took
}

func handleByHand(ctx context.Context, pool *pgxpool.Pool, m kafka.Message) error {
	id, err := uuid.Parse(string(m.Headers[0].Value))
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `insert into bench_seen (id) values ($1) on conflict do nothing`, id)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, benchEffect, id, m.Value)
		return err
	})
}
