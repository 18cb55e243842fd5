package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/firstseen/firstseen/migrations"
)

// Writer adds messages. The zero value works. It is safe for concurrent use.
type Writer struct {
	// Schema is the Postgres schema that the migrations made. Default "firstseen".
	Schema string
	// Notify has relays with Config.Listen woken by the commit. It is NOTIFY, for which Postgres has all transactions of
	// the cluster that notify commit one after the other, and which fails them when its queue is full: leave it out where
	// the poll of a relay, or Relay.Wake, is soon enough.
	Notify bool
}

// Tx is the caller's transaction: a pgx.Tx, or whatever else of pgx runs a query.
type Tx interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SQLTx is the caller's transaction where it is database/sql's, by any driver.
type SQLTx interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Add adds a message in the caller's transaction: it is sent if that commits, and there is nothing of it if that does
// not. Of messages with one tenant and idempotency key the first is added, and the others are told its ID with
// AlreadyExisted; never does that fail the transaction, whatever its isolation level. A twin in another transaction
// that has not ended is waited for.
//
// In the context of a firstseen handler the message gets the headers causation-id and correlation-id (see
// [HeaderCausation]) of the message that is being handled, and in that of a span traceparent and tracestate; what it
// has of them itself stays.
func (w *Writer) Add(ctx context.Context, tx Tx, m Message) (Added, error) {
	return w.add(ctx, m, func(sql string, args []any, isNew *bool) error {
		return tx.QueryRow(ctx, sql, args...).Scan(isNew)
	})
}

// AddSQL is Add in a transaction of database/sql.
func (w *Writer) AddSQL(ctx context.Context, tx SQLTx, m Message) (Added, error) {
	return w.add(ctx, m, func(sql string, args []any, isNew *bool) error {
		return tx.QueryRowContext(ctx, sql, args...).Scan(isNew)
	})
}

// addSQL takes one message as texts and bytes, which every driver can send.
const addSQL = `select firstseen.add_outbox_message($1::text, $2::text::uuid, $3::boolean, $4::text, $5::text,
	$6::bytea, $7::bytea, $8::bytea, $9::timestamptz)`

func (w *Writer) add(ctx context.Context, m Message, run func(sql string, args []any, isNew *bool) error) (
	Added, error) {
	r, err := rowOf(&m, withCause(ctx, m.Headers))
	if err != nil {
		return Added{}, fmt.Errorf("add to outbox: %w", err)
	}
	var isNew bool
	args := []any{m.Tenant, r.id.String(), r.keyed, orNull(r.raw), m.Topic, bytesOrNull(m.Key), bytesOrNull(r.headers),
		bytesOrNull(m.Value), orNull(due(&m))}
	if err := run(w.sql(addSQL), args, &isNew); err != nil {
		return Added{}, fmt.Errorf("add to outbox for topic %s: %w", m.Topic, err)
	}
	return Added{ID: r.id, AlreadyExisted: !isNew}, nil
}

const addAllSQL = `select firstseen.add_outbox($1, $2, $3, $4, $5, $6, $7, $8, $9)`

// AddAll adds messages in their order, in one round trip; see Add. Of twins among them the first is added.
func (w *Writer) AddAll(ctx context.Context, tx Tx, ms []Message) ([]Added, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	var c columns
	added := make([]Added, len(ms))
	for i := range ms {
		r, err := rowOf(&ms[i], withCause(ctx, ms[i].Headers))
		if err != nil {
			return nil, fmt.Errorf("add message %d of %d to outbox: %w", i, len(ms), err)
		}
		c.add(&r)
		added[i].ID = r.id
	}
	var isNew []bool
	err := tx.QueryRow(ctx, w.sql(addAllSQL), c.tenants, c.ids, c.keyed, c.raws, c.topics, c.keys, c.headers, c.values,
		c.due).Scan(&isNew)
	if err != nil {
		return nil, fmt.Errorf("add %d messages to outbox: %w", len(ms), err)
	}
	for i := range added {
		added[i].AlreadyExisted = !isNew[i]
	}
	return added, nil
}

// columns are messages as the arrays of a set-based statement.
type columns struct {
	tenants, topics       []string
	ids                   []pgtype.UUID
	keyed                 []bool
	raws                  []*string
	keys, headers, values [][]byte
	due                   []*time.Time
}

func (c *columns) add(r *row) {
	c.tenants, c.topics = append(c.tenants, r.Tenant), append(c.topics, r.Topic)
	c.ids, c.keyed, c.raws = append(c.ids, pgtype.UUID{Bytes: r.id, Valid: true}), append(c.keyed, r.keyed), append(c.raws, r.raw)
	c.keys, c.values = append(c.keys, r.Key), append(c.values, r.Value)
	c.headers, c.due = append(c.headers, r.headers), append(c.due, due(r.Message))
}

func due(m *Message) *time.Time {
	if m.NotBefore.IsZero() {
		return nil
	}
	return &m.NotBefore
}

// sql spells a statement for the schema, and has it notify where that is asked for.
func (w *Writer) sql(statement string) string {
	schema := cmp.Or(w.Schema, migrations.DefaultSchema)
	if w.Notify {
		statement = `with notified as materialized (select pg_notify('` + strings.ReplaceAll(channel(schema), `'`, `''`) +
			`', '')) ` + statement + ` from notified`
	}
	if schema == migrations.DefaultSchema {
		return statement
	}
	return migrations.Schema(schema).SQL(statement)
}

// orNull is a null where there is nothing.
func orNull[T any](v *T) any {
	if v == nil {
		return nil
	}
	return *v
}

func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
