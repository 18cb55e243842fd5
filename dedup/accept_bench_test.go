package dedup_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// BenchmarkAccept compares accept and commit of batches of new messages with the cheapest load that Postgres
// has: two raw binary COPYs of the same rows into the same tables, in one transaction. The rounds alternate;
// the ratio of their medians is the figure (above 1: accept is faster).
//
//	go test ./dedup -run '^$' -bench Accept -benchtime 1x
func BenchmarkAccept(b *testing.B) {
	ctx := context.Background()
	server := deduptest.StartServer(b, pgserver.Config{Settings: durable})
	db := deduptest.Migrated(b, server.DSN("postgres"))
	store, err := dedup.Open(ctx, db.Pool, dedup.Config{Inbox: "bench"})
	require.NoError(b, err)
	scopes, err := store.Scopes(ctx, []dedup.ScopeKey{{Handler: "accept"}, {Handler: "copy"}})
	require.NoError(b, err)

	for _, newID := range []struct {
		name string
		make func() uuid.UUID
	}{{"v4", uuid.New}, {"v7", func() uuid.UUID { return uuid.Must(uuid.NewV7()) }}} {
		for _, size := range []int{100, 1000, 5000} {
			b.Run(fmt.Sprintf("%s/batch=%d", newID.name, size), func(b *testing.B) {
				p, err := store.Acquire(ctx, "bench", newID.name, int32(size), "bench")
				require.NoError(b, err)
				require.NoError(b, store.Reposition(ctx, p, 0, uuid.Nil))
				for range b.N {
					compareWithCopy(b, db.Pool, store, p, scopes, size, newID.make)
				}
			})
		}
	}
}

// durable are the settings under which a ratio to COPY means something: real durability, and malloc settings
// pinned, which otherwise change COPY twofold from run to run.
var durable = map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	"shared_buffers": "512MB", "max_wal_size": "4GB", "autovacuum": "off"}

func init() {
	for _, k := range []string{"MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_"} {
		_ = os.Setenv(k, "67108864")
	}
}

func compareWithCopy(b *testing.B, pool *pgxpool.Pool, store *dedup.Store, p *dedup.Position, scopes []int32,
	size int, newID func() uuid.UUID) {
	const perRound = 20_000
	rounds := 10
	var ours, theirs []float64
	for round := range rounds {
		a, c := benchMessages(perRound, newID), copyStreams(benchMessages(perRound, newID), scopes[1], size)
		accept := func() { ours = append(ours, timed(func() { acceptAll(b, store, p, a, scopes[0], size) })) }
		raw := func() { theirs = append(theirs, timed(func() { copyAll(b, pool, c) })) }
		if round%2 == 0 {
			accept()
			raw()
		} else {
			raw()
			accept()
		}
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	b.ReportMetric(perRound/ours[rounds/2], "accept-msg/s")
	b.ReportMetric(perRound/theirs[rounds/2], "copy-msg/s")
	b.ReportMetric(theirs[rounds/2]/ours[rounds/2], "ratio")
}

func timed(f func()) float64 {
	start := time.Now()
	f()
	return time.Since(start).Seconds()
}

func benchMessages(n int, newID func() uuid.UUID) []dedup.Message {
	ms := make([]dedup.Message, n)
	for i := range ms {
		payload := make([]byte, 300)
		for j := range payload {
			payload[j] = byte(rand.Uint32())
		}
		ms[i] = dedup.Message{ID: newID(), Topic: "bench", Partition: 1, Offset: int64(i), Timestamp: time.Now(),
			Key: []byte("key-" + fmt.Sprint(i%1000)), Value: payload}
	}
	return ms
}

func acceptAll(b *testing.B, store *dedup.Store, p *dedup.Position, ms []dedup.Message, scope int32, size int) {
	ctx := context.Background()
	for chunk := range slices.Chunk(ms, size) {
		batch := &dedup.Batch{Position: p, Next: p.Next + int64(len(chunk)), Entries: make([]dedup.Entry, len(chunk))}
		for i := range chunk {
			batch.Entries[i] = dedup.Entry{Scope: scope, Message: &chunk[i]}
		}
		tx, err := store.Accept(ctx, batch)
		require.NoError(b, err)
		require.NoError(b, tx.Commit(ctx))
	}
}

// copyStreams encodes messages beforehand as COPY's binary format wants them (manual, "COPY", File Formats), one
// pair of streams a batch, so that the other side of the comparison pays for nothing but the load.
func copyStreams(ms []dedup.Message, scope int32, size int) (streams [][2][]byte) {
	for chunk := range slices.Chunk(ms, size) {
		ids, inbox := newCopyStream(), newCopyStream()
		for i := range chunk {
			m := &chunk[i]
			at := binary.BigEndian.AppendUint64(nil, uint64(m.Timestamp.UnixMicro()-946684800000000))
			ids.row(int4(scope), m.ID[:])
			inbox.row([]byte(m.Topic), int4(m.Partition), int4(scope), m.ID[:],
				binary.BigEndian.AppendUint64(nil, uint64(m.Offset)), at, m.Key, m.Value)
		}
		streams = append(streams, [2][]byte{ids.end(), inbox.end()})
	}
	return streams
}

type copyStream struct{ buf []byte }

func newCopyStream() *copyStream {
	return &copyStream{append([]byte("PGCOPY\n\xff\r\n\x00"), make([]byte, 8)...)}
}

func (s *copyStream) row(fields ...[]byte) {
	s.buf = binary.BigEndian.AppendUint16(s.buf, uint16(len(fields)))
	for _, f := range fields {
		s.buf = append(binary.BigEndian.AppendUint32(s.buf, uint32(len(f))), f...)
	}
}

func (s *copyStream) end() []byte { return append(s.buf, 0xff, 0xff) }

func int4(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }

func copyAll(b *testing.B, pool *pgxpool.Pool, streams [][2][]byte) {
	ctx := context.Background()
	for _, s := range streams {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			conn := tx.Conn().PgConn()
			if _, err := conn.CopyFrom(ctx, bytes.NewReader(s[0]),
				`copy firstseen.message_dedup (scope_id, message_id) from stdin binary`); err != nil {
				return err
			}
			_, err := conn.CopyFrom(ctx, bytes.NewReader(s[1]), `copy firstseen.inbox (topic, "partition", scope_id,
				message_id, "offset", produced_at, key, payload) from stdin binary`)
			return err
		})
		require.NoError(b, err)
	}
}
