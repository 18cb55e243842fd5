package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
)

// copyTable is a table that raw COPY fills, and how it gets a message's row.
type copyTable struct {
	columns string
	row     func(s *copyStream, scope int32, m *dedup.Message)
}

// copySeq numbers inbox rows as accept does, beyond its numbers.
var copySeq atomic.Int64

func init() { copySeq.Store(1 << 60) }

// The rows are those that firstseen writes.
var (
	copyDedup = copyTable{`firstseen.message_dedup (scope_id, message_id)`,
		func(s *copyStream, scope int32, m *dedup.Message) { s.row(integer(scope), m.ID[:]) }}
	copyInbox = copyTable{`firstseen.inbox (seq, scope_id, message_id, topic, "partition", "offset", produced_at, key, headers, payload)`,
		func(s *copyStream, scope int32, m *dedup.Message) {
			s.row(bigint(copySeq.Add(1)), integer(scope), m.ID[:], []byte(m.Topic), integer(m.Partition),
				bigint(m.Offset), timestamp(m.Timestamp), m.Key, dedup.AppendHeaders(nil, m.Headers), m.Value)
		}}
	copyEffect = copyTable{`bench_effects (id, payload)`,
		func(s *copyStream, _ int32, m *dedup.Message) { s.row(m.ID[:], m.Value) }}
)

// copyLoad are the batches of one writer as raw COPY takes them, each a transaction. They are encoded before the clock
// starts, so that nothing is left but what the server does.
type copyLoad struct {
	statements []string   // the COPYs, one for each table
	batches    [][][]byte // a stream for each statement
	tight      bool       // see tighten
}

func newCopyLoad(tables []copyTable, scope int32, ms []dedup.Message, size int) copyLoad {
	var l copyLoad
	for _, t := range tables {
		l.statements = append(l.statements, `copy `+t.columns+` from stdin binary`)
	}
	for chunk := range slices.Chunk(ms, size) {
		streams := make([][]byte, len(tables))
		for i, t := range tables {
			streams[i] = t.stream(scope, chunk)
		}
		l.batches = append(l.batches, streams)
	}
	return l
}

// tighten has the load begin and commit together with its COPYs, which saves two round trips a batch.
func (l copyLoad) tighten() copyLoad {
	last := len(l.statements) - 1
	l.statements[0] = `begin; ` + l.statements[0]
	l.statements[last] += `; commit`
	l.tight = true
	return l
}

// run loads the batches on one connection.
func (l copyLoad) run(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for _, streams := range l.batches {
		if l.tight {
			err = l.load(ctx, conn.Conn(), streams)
		} else {
			err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return l.load(ctx, tx.Conn(), streams) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l copyLoad) load(ctx context.Context, conn *pgx.Conn, streams [][]byte) error {
	for i, stream := range streams {
		if _, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(stream), l.statements[i]); err != nil {
			return fmt.Errorf("%s: %w", l.statements[i], err)
		}
	}
	return nil
}

func (t copyTable) stream(scope int32, ms []dedup.Message) []byte {
	s := &copyStream{append([]byte("PGCOPY\n\xff\r\n\x00"), make([]byte, 8)...)}
	for i := range ms {
		t.row(s, scope, &ms[i])
	}
	return append(s.buf, 0xff, 0xff)
}

// copyStream is COPY's binary format (Postgres manual, "COPY", File Formats).
type copyStream struct{ buf []byte }

// row appends a row; a nil field is null.
func (s *copyStream) row(fields ...[]byte) {
	s.buf = binary.BigEndian.AppendUint16(s.buf, uint16(len(fields)))
	for _, f := range fields {
		if f == nil {
			s.buf = append(s.buf, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		s.buf = append(binary.BigEndian.AppendUint32(s.buf, uint32(len(f))), f...)
	}
}

func integer(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }

func bigint(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }

// timestamp counts microseconds from Postgres' epoch, the year 2000.
func timestamp(t time.Time) []byte {
	return bigint(t.UnixMicro() - time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
}
