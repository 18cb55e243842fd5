package ingress

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/migrations"
)

// store has the ingress's own statements. Messages are written by the processor.
type store struct {
	of      *dedup.Store
	timeout time.Duration

	find, enqueued, clock, enqueue string
}

func newStore(of *dedup.Store) *store {
	sql := migrations.Schema(of.Config().Schema).SQL
	return &store{of: of, timeout: of.Config().AnswerTimeout,
		find: sql(findSQL), enqueued: sql(enqueuedSQL), clock: clockSQL, enqueue: sql(enqueueSQL)}
}

// known is a message that Postgres knows.
type known struct {
	dedup.Message
	// kept says that its content is there.
	kept      bool
	createdAt time.Time
	seenBy    []seen
	enqueued  *enqueued // nil: it came by Kafka
}

type seen struct {
	handler  string
	state    *dedup.State // nil: it is kept no more
	attempts int
	reason   string
}

// enqueued has what only a message that came by HTTP has.
type enqueued struct {
	key          *string
	hash         []byte
	template     *Template
	participants []participant
}

const (
	findSQL = `
select m.message_id, m.handler, m.first_seen_at, m.state, m.attempts, m.reason, m.topic, m.raw_id, m.key, m.headers,
	m.payload
from firstseen.find_messages($1, $2, $3, $4::text[]::uuid[]) m`

	enqueuedSQL = `
select e.message_id, e.idempotency_key, e.request_hash, e.template_key, e.template_version, e.template_variables,
	array(select p.role from firstseen.participants p where p.enqueued_id = e.enqueued_id order by p.ordinal),
	array(select p.address from firstseen.participants p where p.enqueued_id = e.enqueued_id order by p.ordinal),
	array(select p.name from firstseen.participants p where p.enqueued_id = e.enqueued_id order by p.ordinal)
from firstseen.enqueued e
where e.inbox = $1 and e.tenant = $2 and e.topic = $3 and e.message_id = any ($4::text[]::uuid[])`

	// The database's clock puts messages in order, whichever process takes them.
	clockSQL = `select (extract(epoch from clock_timestamp()) * 1000000)::bigint`
)

// oneSnapshot has what was noted of a message seen with it, or neither.
var oneSnapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// find looks for messages of the caller's tenant among those that the topic's handlers have seen. It gives the
// database's time in microseconds.
func (x *exchange) find(ctx context.Context, ids []uuid.UUID) (found map[uuid.UUID]*known, now int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, x.store.timeout)
	defer cancel()
	found = map[uuid.UUID]*known{}
	inbox, texts, q := x.store.of.Inbox(), make([]string, len(ids)), &pgx.Batch{}
	for i, id := range ids {
		texts[i] = id.String()
	}
	q.Queue(x.store.find, inbox, x.caller.Tenant, x.topic.handlers, texts).Query(func(rows pgx.Rows) error {
		return scanFound(rows, found)
	})
	q.Queue(x.store.enqueued, inbox, x.caller.Tenant, x.topic.name, texts).Query(func(rows pgx.Rows) error {
		return scanEnqueued(rows, found)
	})
	q.Queue(x.store.clock).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	err = pgx.BeginTxFunc(ctx, x.store.of.Pool(), oneSnapshot, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, q).Close()
	})
	if err != nil {
		return nil, 0, fmt.Errorf("find %d messages: %w", len(ids), err)
	}
	for _, m := range found {
		m.Tenant = x.caller.Tenant
	}
	return found, now, nil
}

func scanFound(rows pgx.Rows, found map[uuid.UUID]*known) error {
	for rows.Next() {
		var m known
		var s seen
		var state, attempts *int32
		var topic, raw, reason *string
		var headers []byte
		err := rows.Scan(&m.ID, &s.handler, &m.createdAt, &state, &attempts, &reason, &topic, &raw, &m.Key, &headers,
			&m.Value)
		if err != nil {
			return err
		}
		if m.Headers, err = dedup.DecodeHeaders(headers); err != nil {
			return fmt.Errorf("message %s: %w", m.ID, err)
		}
		m.kept, m.Topic, m.RawID = state != nil, deref(topic), deref(raw)
		s.attempts, s.reason = int(deref(attempts)), deref(reason)
		if state != nil {
			s.state = new(dedup.State(*state)) //nolint:gosec // 0, 1 or 2
		}
		first := found[m.ID]
		if first == nil { // the one with the content comes first
			found[m.ID], first = &m, &m
		}
		first.seenBy = append(first.seenBy, s)
		if m.createdAt.Before(first.createdAt) {
			first.createdAt = m.createdAt
		}
	}
	return rows.Err()
}

// scanEnqueued adds what is noted. A message that no handler has seen any more is known by that alone.
func scanEnqueued(rows pgx.Rows, found map[uuid.UUID]*known) error {
	for rows.Next() {
		var id uuid.UUID
		var e enqueued
		var key, version *string
		var variables []byte
		var roles, addresses []string
		var names []*string
		err := rows.Scan(&id, &e.key, &e.hash, &key, &version, &variables, &roles, &addresses, &names)
		if err != nil {
			return err
		}
		if key != nil {
			e.template = &Template{Key: *key, Version: deref(version), Variables: variables}
		}
		for i := range roles {
			e.participants = append(e.participants, participant{roles[i], addresses[i], names[i]})
		}
		if found[id] == nil {
			found[id] = &known{Message: dedup.Message{ID: id}}
		}
		found[id].enqueued = &e
	}
	return rows.Err()
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

const enqueueSQL = `select firstseen.enqueue($1, $2, $3, $4, $5::text[]::uuid[], $6, $7, $8, $9, $10,
	$11::text[]::uuid[], $12, $13, $14, $15)`

// note writes down what only these messages have, in the transaction that makes them.
func (x *exchange) note(ctx context.Context, tx pgx.Tx, ms []dedup.Message, itemOf map[uuid.UUID]*item) error {
	var ids, of, roles, addresses []string
	var keys, templates, versions, names []*string
	var hashes, variables [][]byte
	var ordinals []int32
	for i := range ms {
		id, it := ms[i].ID, itemOf[ms[i].ID]
		ids, keys, hashes = append(ids, id.String()), append(keys, orNil(it.idempotencyKey)), append(hashes, it.hash)
		var t Template
		if it.Template != nil {
			t = *it.Template
		}
		templates, versions = append(templates, orNil(t.Key)), append(versions, orNil(t.Version))
		variables = append(variables, t.Variables)
		for n, p := range it.Participants {
			of, ordinals = append(of, id.String()), append(ordinals, int32(n)) //nolint:gosec // few
			roles, addresses, names = append(roles, p.Role), append(addresses, p.Address), append(names, p.Name)
		}
	}
	_, err := tx.Exec(ctx, x.store.enqueue, x.store.of.Inbox(), x.caller.Tenant, x.topic.name, x.caller.Name,
		ids, keys, hashes, templates, versions, variables, of, ordinals, roles, addresses, names)
	return err
}

// orNil is nil for a text that is not there.
func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
