package dedup

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/firstseen/firstseen/dedup/internal/handlertx"
)

// UnnestColumns is a from item for what Columns gives, as the parameters $1 to $10: one row a message, under the
// alias m, with the attributes of the schema's type message as columns, and ordinal, which counts from 1.
const UnnestColumns = `unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[],
	$7::timestamptz[], $8::bytea[], $9::bytea[], $10::bytea[]) with ordinality
	as m (id, raw_id, tenant, topic, "partition", "offset", produced_at, key, payload, headers, ordinal)`

// Columns gives messages as the parameters of one set-based statement: ten arrays, for [UnnestColumns]. A batch
// handler inserts all its messages in one round trip with them:
//
//	_, err := tx.Exec(ctx, `insert into payments (id, body) select m.id, m.payload from `+
//		dedup.UnnestColumns+` order by m.ordinal`, dedup.Columns(ms)...)
//
// Keys and payloads are byte exact, null and empty kept apart; headers are as [AppendHeaders] encodes them, and no
// headers are null, like an empty raw ID and a zero timestamp; the raw timestamp is left out. The arrays are encoded
// already: they work in the transaction that handlers are given, in all of pgx's query modes. They are copies, and
// stay valid when the messages do not. [ExecColumns] makes none of what is large.
func Columns(ms []Message) []any {
	return (&statement{args: columnsOf(ms, true)}).parameters()
}

// ExecColumns runs a statement with [Columns] of messages as its parameters, and nobody reads its rows. In the
// transaction that handlers are given it writes large ones to the connection from where they are: Exec with Columns
// takes five times as much memory as a large message. In another transaction it is Exec.
func ExecColumns(ctx context.Context, tx pgx.Tx, sql string, ms []Message) error {
	s := statement{sql, columnsOf(ms, false)}
	t, ok := tx.(*handlertx.Tx)
	if !ok || !streams(tx.Conn(), s) {
		_, err := tx.Exec(ctx, sql, s.parameters()...)
		return err
	}
	return t.Do(func(conn *pgx.Conn) error { return stream(ctx, conn.PgConn(), s) })
}

// columnsOf are the arrays; copied: large values are copied to them too.
func columnsOf(ms []Message, copied bool) []any {
	var ids, raws, tenants, topics, partitions, offsets, times, keys, values, headers array
	keys.copied, values.copied, headers.copied = copied, copied, copied
	keyBytes, valueBytes, headerBytes := sizes(ms, copied)
	ids.grow(pgtype.UUIDOID, len(ms), 16*len(ms))
	raws.grow(pgtype.TextOID, len(ms), 0)
	tenants.grow(pgtype.TextOID, len(ms), 0)
	topics.grow(pgtype.TextOID, len(ms), 16*len(ms))
	partitions.grow(pgtype.Int4OID, len(ms), 4*len(ms))
	offsets.grow(pgtype.Int8OID, len(ms), 8*len(ms))
	times.grow(pgtype.TimestamptzOID, len(ms), 8*len(ms))
	keys.grow(pgtype.ByteaOID, len(ms), keyBytes)
	values.grow(pgtype.ByteaOID, len(ms), valueBytes)
	headers.grow(pgtype.ByteaOID, len(ms), headerBytes)
	for i := range ms {
		m := &ms[i]
		ids.uuid(m.ID)
		raws.text(m.RawID)
		tenants.string(m.Tenant)
		topics.string(m.Topic)
		partitions.int32(m.Partition)
		offsets.int64(m.Offset)
		times.timestamp(m)
		keys.bytea(m.Key)
		values.bytea(m.Value)
		headers.headers(m.Headers)
	}
	return []any{&ids, &raws, &tenants, &topics, &partitions, &offsets, &times, &keys, &values, &headers}
}

// grow starts an array with room for n elements of size bytes together.
func (a *array) grow(element uint32, n, size int) {
	a.buf = slices.Grow(a.buf, arrayHeader+4*n+size)
	a.reset(element)
}

// sizes are about what arrays hold of messages.
func sizes(ms []Message, copied bool) (keys, values, headers int) {
	held := func(v []byte) int {
		if len(v) >= largeBytes && !copied {
			return 0
		}
		return len(v)
	}
	for i := range ms {
		keys += held(ms[i].Key)
		values += held(ms[i].Value)
		for _, h := range ms[i].Headers {
			headers += 8 + len(h.Key) + held(h.Value)
		}
	}
	return keys, values, headers
}
