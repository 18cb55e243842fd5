package main

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
)

// The habit of most Go teams, and of the blog posts on the inbox pattern: kafka-go's Reader in a group, and for each
// message one transaction that inserts the ID on conflict do nothing, runs the handler if the ID was new, and
// commits; then the offset. The tuned peer is the same after somebody has measured it: a reader for each partition,
// and offsets committed once a second, which redelivers more after a crash and is as safe, for the IDs are in
// Postgres.

func byHand(ctx context.Context, j job, p *progress) error { return readInGroup(ctx, j, p, 1, 0) }

func byHandTuned(ctx context.Context, j job, p *progress) error {
	return readInGroup(ctx, j, p, j.Partitions, time.Second)
}

func readInGroup(ctx context.Context, j job, p *progress, readers int, commitInterval time.Duration) error {
	pool, err := j.pool(ctx, readers)
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	for range readers {
		running.Go(func() { stop(readAll(ctx, j, p, pool, commitInterval)) })
	}
	select {
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-p.done:
		err = p.awaitCommitted(ctx, j)
	}
	stop(nil)
	running.Wait()
	return err
}

// readAll handles what its reader is assigned until ctx ends.
func readAll(ctx context.Context, j job, p *progress, pool *pgxpool.Pool, commitInterval time.Duration) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        j.Brokers,
		GroupID:        j.Group,
		Topic:          j.Topic,
		StartOffset:    kafka.FirstOffset,
		CommitInterval: commitInterval,
		// By default the readers of one process need seconds to find together, and to notice that data is there.
		MaxWait:           100 * time.Millisecond,
		JoinGroupBackoff:  100 * time.Millisecond,
		HeartbeatInterval: 500 * time.Millisecond,
	})
	defer func() { _ = reader.Close() }()
	for {
		m, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		id, err := headerID(m.Headers)
		if err != nil {
			return err
		}
		if err := handleOnce(ctx, pool, id, m.Value); err != nil {
			return err
		}
		p.handled(m.Partition, m.Offset)
		if err := reader.CommitMessages(ctx, m); err != nil {
			return err
		}
	}
}

func headerID(headers []kafka.Header) (uuid.UUID, error) {
	for _, h := range headers {
		if h.Key == idHeader {
			return uuid.ParseBytes(h.Value)
		}
	}
	return uuid.Nil, errNoID
}

const (
	insertSeen   = `insert into bench_seen (id) values ($1) on conflict do nothing`
	insertEffect = `insert into bench_effects (id, payload) values ($1, $2)`
)

// handleOnce has a message take its effect unless its ID was seen before.
func handleOnce(ctx context.Context, pool *pgxpool.Pool, id uuid.UUID, payload []byte) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, insertSeen, id)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, insertEffect, id, payload)
		return err
	})
}
