package main

import (
	"bytes"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// What someone who knows franz-go, pgx and Postgres writes in an afternoon, for one service: 5000 records a poll, one
// transaction for all of them. IDs go in as one sorted array, which keeps neighbours on the index's pages together and
// two instances from deadlocking; effects go by COPY, the fastest way for rows; offsets are marked after the commit
// and follow in the background. Whatever fails ends the program, and its next start is the retry.
// The variants: a queued INSERT for each new message, as handlers of single messages have it; each new message
// stored whole in an inbox table besides; a poll's partitions handled in several transactions at once.

const pollRecords = 5000

// effects adds those of new messages to the open transaction; what is queued goes out together with the commit.
type effects func(context.Context, *pgx.Conn, *pgx.Batch, []identified) error

// identified has its ID as plain bytes: pgx sends a uuid.UUID, which is a driver.Valuer, by way of its text.
type identified struct {
	*kgo.Record
	id [16]byte
}

// expert gives the variant with so many transactions at once.
func expert(transactions int32, add effects) peer {
	return func(ctx context.Context, j job, p *progress) error { return runExpert(ctx, j, p, transactions, add) }
}

func runExpert(ctx context.Context, j job, p *progress, transactions int32, add effects) error {
	pool, err := j.pool(ctx, int(transactions))
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(j.Brokers...), kgo.ConsumerGroup(j.Group), kgo.ConsumeTopics(j.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.BlockRebalanceOnPoll(), // no partition moves while its records are in a transaction
		kgo.AutoCommitMarks(),
	)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for !p.isDone() {
		fetches := client.PollRecords(ctx, pollRecords*int(transactions))
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := handlePoll(ctx, pool, fetches.Records(), transactions, add); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) { p.handled(int(r.Partition), r.Offset) })
		client.MarkCommitRecords(fetches.Records()...)
		client.AllowRebalance()
	}
	return client.CommitMarkedOffsets(ctx)
}

func handlePoll(ctx context.Context, pool *pgxpool.Pool, records []*kgo.Record,
	transactions int32, add effects) error {
	parts := map[int32][]*kgo.Record{}
	for _, r := range records {
		parts[r.Partition%transactions] = append(parts[r.Partition%transactions], r)
	}
	var running errgroup.Group
	for _, part := range parts {
		running.Go(func() error {
			return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return handleSet(ctx, c.Conn(), part, add) })
		})
	}
	return running.Wait()
}

// handleSet is the transaction. Where it fails, the pool closes the connection, which rolls it back.
func handleSet(ctx context.Context, conn *pgx.Conn, records []*kgo.Record, add effects) error {
	first := make(map[[16]byte]bool, len(records)) // → is it new to Postgres?
	messages := make([]identified, 0, len(records))
	for _, r := range records {
		id, err := recordID(r)
		if err != nil {
			return err
		}
		if _, twin := first[id]; !twin {
			first[id] = false
			messages = append(messages, identified{r, id})
		}
	}
	if err := markNew(ctx, conn, messages, first); err != nil {
		return err
	}
	var b pgx.Batch
	if err := add(ctx, conn, &b,
		slices.DeleteFunc(messages, func(m identified) bool { return !first[m.id] })); err != nil {
		return err
	}
	b.Queue(`commit`)
	return conn.SendBatch(ctx, &b).Close()
}

// markNew begins the transaction and inserts the IDs, in one round trip.
func markNew(ctx context.Context, conn *pgx.Conn, messages []identified, isNew map[[16]byte]bool) error {
	ids := make(pgtype.FlatArray[[16]byte], len(messages))
	for i, m := range messages {
		ids[i] = m.id
	}
	slices.SortFunc(ids, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	var b pgx.Batch
	b.Queue(`begin`)
	b.Queue(`insert into bench_seen (id) select unnest($1::uuid[]) on conflict do nothing returning id`, ids).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				isNew[[16]byte(rows.RawValues()[0])] = true
			}
			return rows.Err()
		})
	return conn.SendBatch(ctx, &b).Close()
}

func copyEffects(ctx context.Context, conn *pgx.Conn, _ *pgx.Batch, messages []identified) error {
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"bench_effects"}, []string{"id", "payload"}, pgx.CopyFromSlice(
		len(messages), func(i int) ([]any, error) { return []any{messages[i].id, messages[i].Value}, nil }))
	return err
}

func queueEffects(_ context.Context, _ *pgx.Conn, b *pgx.Batch, messages []identified) error {
	for _, m := range messages {
		b.Queue(insertEffect, m.id, m.Value)
	}
	return nil
}

func copyInboxAndEffects(ctx context.Context, conn *pgx.Conn, b *pgx.Batch, messages []identified) error {
	columns := []string{"topic", "partition", "offset", "produced_at", "key", "payload", "id"}
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"bench_inbox"}, columns, pgx.CopyFromSlice(len(messages),
		func(i int) ([]any, error) {
			m := messages[i]
			return []any{m.Topic, m.Partition, m.Offset, m.Timestamp, m.Key, m.Value, m.id}, nil
		}))
	if err != nil {
		return err
	}
	return copyEffects(ctx, conn, b, messages)
}
