package dedup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/memory"
)

// sliceBytes is the size of the parts that a large value is read in, and from where on one is large: a little below
// what the driver rounds its buffer for a row to.
const sliceBytes = 1<<20 - 1<<10

// part is a key, headers or a payload of a loaded message that was too large to come along.
type part struct {
	entry int
	of    int // index of partSQL
	size  int
}

// The parts of a message, in their order.
const (
	keyPart = iota
	headersPart
	payloadPart
)

// partSQL reads a value in slices. It is put together first, once: to cut a slice out of what is stored compressed is
// to decompress all that comes before.
var partSQL = [...]string{slicesOf("p.key"), slicesOf("p.headers"), slicesOf("p.payload")}

func slicesOf(column string) string {
	return `select n, substring(whole.value from n for $5)
	from (select ` + column + ` || ''::bytea as value from firstseen.parked p
		where p.scope_id = $1 and p.lane = $2 and p."offset" = $3 and p.message_id = $4 offset 0) whole
	cross join lateral generate_series(1, octet_length(whole.value), $5) n`
}

// leaveOut notes what did not come of the last entry.
func (t *Tx) leaveOut(sizes [3]*int32, absent ...bool) {
	for of, size := range sizes {
		if size != nil && absent[of] {
			t.rest = append(t.rest, part{len(t.batch.Entries) - 1, of, int(*size)})
		}
	}
}

// LoadRest reads what LoadLanes has left out because it is large, in slices: it takes hardly more memory than what it
// reads. take is asked for that memory before it is allocated, and again for headers before they are decoded; its
// error ends the load. LoadRest costs a round trip only where there is anything to read.
func (t *Tx) LoadRest(ctx context.Context, take func(bytes int) error) error {
	if len(t.rest) == 0 {
		return nil
	}
	values, err := t.readRest(ctx, take)
	for i, p := range t.rest {
		if err == nil {
			err = t.batch.Entries[p.entry].Message.set(p.of, values[i], take)
		}
	}
	if err != nil {
		return fmt.Errorf("load large messages: %w", err)
	}
	t.rest = nil
	return nil
}

func (t *Tx) readRest(ctx context.Context, take func(bytes int) error) ([][]byte, error) {
	size := 0
	for _, p := range t.rest {
		size += p.size
	}
	if err := take(size); err != nil {
		return nil, err
	}
	q, values := &pgx.Batch{}, make([][]byte, len(t.rest))
	for i, p := range t.rest {
		values[i] = memory.Bytes(p.size)
		e := &t.batch.Entries[p.entry]
		q.Queue(t.store.db.SQL(partSQL[p.of]), e.Scope, e.Lane, e.Message.Offset, e.Message.ID, sliceBytes).
			Query(func(rows pgx.Rows) error { return readSlices(rows, values[i]) })
	}
	return values, t.store.Answered(ctx, size, func(ctx context.Context) error {
		return t.conn.SendBatch(ctx, q).Close()
	})
}

// set has a part of the message be what was stored of it, and takes memory for what comes out of that.
func (m *Message) set(of int, stored []byte, take func(bytes int) error) (err error) {
	switch of {
	case keyPart:
		m.Key = stored
	case headersPart:
		var count int
		if count, err = countHeaders(stored); err != nil {
			return err
		}
		if err = take(count * headerBytes); err == nil {
			m.Headers, err = DecodeHeaders(stored)
		}
	case payloadPart:
		m.Value = stored
	}
	return err
}

func readSlices(rows pgx.Rows, into []byte) error {
	s, read := slice{into: into}, 0
	for rows.Next() {
		if err := rows.Scan(&s.from, &s); err != nil {
			return err
		}
		read += s.n
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if read != len(into) {
		return fmt.Errorf("%d bytes of %d", read, len(into))
	}
	return nil
}

// slice is a part of a value, where it is scanned to.
type slice struct {
	into    []byte
	from, n int // counted from 1
}

// ScanBytes copies the slice from the driver's memory to its place.
func (s *slice) ScanBytes(b []byte) error {
	if s.from < 1 || s.from-1+len(b) > len(s.into) {
		return fmt.Errorf("a slice of %d bytes from byte %d, of %d", len(b), s.from, len(s.into))
	}
	s.n = copy(s.into[s.from-1:], b)
	return nil
}
