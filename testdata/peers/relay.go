package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
)

// Relays put a job's messages into an outbox of their own, off the clock, and then send them to its topic: the clock ends
// when the last is marked as sent.

const (
	relayBatch = 200
	relayKeys  = 1000
)

func relayPayload() []byte {
	b := make([]byte, 300)
	for i := range b {
		b[i] = 'a' + byte(rand.Uint32()%16)
	}
	return b
}

func relayKey(i int) []byte { return fmt.Appendf(nil, "key-%d", i%relayKeys) }

const handTable = `
drop table if exists bench_outbox;
create table bench_outbox (id bigint generated always as identity primary key, message_id uuid not null, key bytea,
	payload bytea, processed_at timestamptz);
create index on bench_outbox (id) where processed_at is null`

// relayByHand is the loop of most blog posts: up to 200 rows that nobody else has locked, one call of kafka-go's Writer for
// them, whose batches it sends at once, and the time in the rows.
func relayByHand(ctx context.Context, j job, p *progress) error {
	pool, err := j.pool(ctx, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, handTable); err != nil {
		return err
	}
	_, err = pool.CopyFrom(ctx, pgx.Identifier{"bench_outbox"}, []string{"message_id", "key", "payload"},
		pgx.CopyFromSlice(j.Messages, func(i int) ([]any, error) {
			return []any{[16]byte(uuid.New()), relayKey(i), relayPayload()}, nil
		}))
	if err != nil {
		return err
	}
	p.start = time.Now()
	w := &kafka.Writer{Addr: kafka.TCP(j.Brokers...), Topic: j.Topic, Balancer: &kafka.Hash{}, BatchSize: relayBatch,
		BatchTimeout: time.Millisecond, RequiredAcks: kafka.RequireAll}
	for sent := 0; sent < j.Messages; {
		n, err := relaySome(ctx, pool, w)
		if err != nil {
			return err
		}
		sent += n
	}
	p.finish()
	return w.Close()
}

func relaySome(ctx context.Context, pool *pgxpool.Pool, w *kafka.Writer) (n int, err error) {
	return n, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select id, message_id::text, key, payload from bench_outbox where processed_at is null
			order by id limit $1 for update skip locked`, relayBatch)
		if err != nil {
			return err
		}
		var id int64
		var messageID string
		var key, payload []byte
		var ids []int64
		var ms []kafka.Message
		_, err = pgx.ForEachRow(rows, []any{&id, &messageID, &key, &payload}, func() error {
			ids = append(ids, id)
			ms = append(ms, kafka.Message{Key: key, Value: payload,
				Headers: []kafka.Header{{Key: idHeader, Value: []byte(messageID)}}})
			return nil
		})
		if err != nil {
			return err
		}
		if err := w.WriteMessages(ctx, ms...); err != nil {
			return err
		}
		n = len(ids)
		_, err = tx.Exec(ctx, `update bench_outbox set processed_at = now() where id = any($1)`, ids)
		return err
	})
}

// relayByWatermill is Watermill's forwarder: its SQL publisher fills a table, its SQL subscriber reads up to 200 rows at
// once, and its publisher to Kafka sends each, waiting for all replicas.
func relayByWatermill(ctx context.Context, j job, p *progress) error {
	pool, err := j.pool(ctx, 4)
	if err != nil {
		return err
	}
	defer pool.Close()
	logger := &watermill.StdLoggerAdapter{ErrorLogger: log.Default()}
	schema := watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: relayBatch}
	outbox := "outbox_" + uuid.NewString()[:8]
	subscriber, err := watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(pool), watermillsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
		PollInterval: 10 * time.Millisecond}, logger)
	if err != nil {
		return err
	}
	if err := subscriber.SubscribeInitialize(outbox); err != nil {
		return err
	}
	if err := fillByWatermill(ctx, pool, j, schema, outbox, logger); err != nil {
		return err
	}
	p.start = time.Now()
	config := watermillkafka.DefaultSaramaSyncPublisherConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.RequiredAcks = sarama.WaitForAll
	publisher, err := watermillkafka.NewPublisher(watermillkafka.PublisherConfig{Brokers: j.Brokers,
		Marshaler: watermillkafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) {
			return m.Metadata.Get("key"), nil
		}), OverwriteSaramaConfig: config}, logger)
	if err != nil {
		return err
	}
	var sent atomic.Int64
	f, err := forwarder.NewForwarder(subscriber, publisher, logger, forwarder.Config{ForwarderTopic: outbox,
		Middlewares: []message.HandlerMiddleware{func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				more, err := next(m)
				if err == nil && sent.Add(1) == int64(j.Messages) {
					p.finish()
				}
				return more, err
			}
		}}})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	select {
	case <-p.done:
		return f.Close()
	case err := <-ended:
		return fmt.Errorf("the forwarder ended early: %w", err)
	}
}

func fillByWatermill(ctx context.Context, pool *pgxpool.Pool, j job, schema watermillsql.SchemaAdapter, outbox string,
	logger watermill.LoggerAdapter) error {
	for begin := 0; begin < j.Messages; begin += 1000 {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			table, err := watermillsql.NewPublisher(watermillsql.TxFromPgx(tx),
				watermillsql.PublisherConfig{SchemaAdapter: schema}, logger)
			if err != nil {
				return err
			}
			var ms []*message.Message
			for i := begin; i < min(begin+1000, j.Messages); i++ {
				m := message.NewMessage(uuid.NewString(), relayPayload())
				m.Metadata.Set("key", string(relayKey(i)))
				ms = append(ms, m)
			}
			return forwarder.NewPublisher(table, forwarder.PublisherConfig{ForwarderTopic: outbox}).Publish(j.Topic, ms...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
