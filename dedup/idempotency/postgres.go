package idempotency

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/internal/session"
	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

// PostgresConfig says where answers are kept. The zero value is the default schema.
type PostgresConfig struct {
	// Schema is the Postgres schema that the migrations made. Default "firstseen".
	Schema string
	// AnswerTimeout bounds each round trip to Postgres that is no handler's, and the wait for a connection of the
	// pool. Default 30 seconds.
	AnswerTimeout time.Duration
}

// Postgres keeps requests and their answers in a table of the schema. It is a [Store], and what [InTransaction] needs.
// It is safe for concurrent use.
type Postgres struct {
	db       *db.DB
	sessions session.Sessions
}

var _ Store = (*Postgres)(nil)

// Open checks that the table is there and that the login may use it: the role firstseen_consumer may. The pool stays
// the caller's, who closes it after the last use. Have dedup.PreparePool prepare its config, or a connection whose
// network has fallen silent is waited for until the kernel gives it up.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg PostgresConfig) (*Postgres, error) {
	if cfg.Schema == "" {
		cfg.Schema = migrations.DefaultSchema
	}
	if cfg.AnswerTimeout <= 0 {
		cfg.AnswerTimeout = dial.Silence
	}
	p := &Postgres{db: &db.DB{Pool: pool, Schema: migrations.Schema(cfg.Schema), Answer: cfg.AnswerTimeout},
		sessions: session.Of(pool)}
	if err := p.checkTable(ctx); err != nil {
		return nil, fmt.Errorf("open idempotency in schema %s: %w", cfg.Schema, err)
	}
	return p, nil
}

const checkTableSQL = `
select t.id is not null, coalesce(array_agg(p.name) filter (where not has_table_privilege(t.id, p.name)), '{}')
from (select to_regclass('firstseen.idempotency')::oid as id) t
cross join unnest(array['select', 'insert', 'update', 'delete']) p (name)
group by t.id`

func (p *Postgres) checkTable(ctx context.Context) error {
	var there bool
	var missing []string
	err := p.ask(ctx, func(ctx context.Context) error {
		return p.db.Pool.QueryRow(ctx, p.db.SQL(checkTableSQL)).Scan(&there, &missing)
	})
	switch {
	case err != nil:
		return db.RightsError(err)
	case !there:
		return errors.New("the table idempotency is not there: run `firstseen migrate up`")
	case len(missing) > 0:
		return fmt.Errorf("the login may not %v on the table idempotency: %s", missing, db.RolesAdvice)
	}
	return nil
}

// ask bounds the wait for an answer.
func (p *Postgres) ask(ctx context.Context, do func(context.Context) error) error {
	return db.Answered(ctx, p.db.Answer, do)
}

// storeError says what was being done, and whose the error is.
func storeError(op string, err error) error {
	if err == nil {
		return nil
	}
	kind := KindQuery
	switch sign := failure.Of(err); {
	case errors.Is(err, errUnreadable):
		kind = KindSerialisation
	case sign == failure.Silent || failure.Unanswered(err):
		kind = KindConnection
	}
	return &StoreError{Op: op, Kind: kind, Err: db.RightsError(err)}
}

// row is a key's row, as one statement has seen it.
type row struct {
	fence         *int64 // of the claim that the statement has made; null: it made none
	same          bool   // its fingerprint is the request's
	leased        bool
	expired       bool
	status        *int
	headers, body []byte
}

// rowColumns are read of a row i, $2 being the request's fingerprint. The answer to another request is not read.
const rowColumns = `i.fingerprint = $2, coalesce(i.lease_until > now(), false), i.expires_at <= now(), i.status,
	case when i.fingerprint = $2 then i.headers end, case when i.fingerprint = $2 then i.body end`

func (r *row) columns() []any {
	return []any{&r.same, &r.leased, &r.expired, &r.status, &r.headers, &r.body}
}

// finding reads the row for the request; open is the state where the row has neither an answer nor a lease.
func (r *row) finding(open State) (Finding, error) {
	switch {
	case r.leased && !r.same, r.answered() && !r.same:
		return Finding{State: Conflicting}, nil
	case r.answered():
		a, err := decodeAnswer(*r.status, r.headers, r.body)
		return Finding{State: Matching, Answer: a}, err
	case r.leased:
		return Finding{State: InProgress}, nil
	}
	return Finding{State: open}, nil
}

func (r *row) answered() bool { return r.status != nil && !r.expired }

const lookupSQL = `select ` + rowColumns + ` from firstseen.idempotency i where i.id = $1`

// Lookup is [Store]'s. That a transaction is at work on the key does not show in it.
func (p *Postgres) Lookup(ctx context.Context, e Entry) (found Finding, err error) {
	var r row
	err = p.ask(ctx, func(ctx context.Context) error {
		return p.db.Pool.QueryRow(ctx, p.db.SQL(lookupSQL), e.ID[:], e.Fingerprint[:]).Scan(r.columns()...)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Finding{}, nil
	case err == nil:
		found, err = r.finding(NotFound)
	}
	return found, storeError("look up a key", err)
}

// lock is the advisory lock of who runs the request: half of its bits are the key's, by which people who look find it.
func (e *Entry) lock() (class, object int32) {
	number := func(sum []byte) int32 { return int32(binary.BigEndian.Uint32(sum)) } //nolint:gosec // all bits are as good
	return number(e.KeyHash[:]), number(e.ID[:])
}

const claimSQL = `
select claimed_as, is_same, is_leased, is_expired, given_status, given_headers, given_body
from firstseen.claim_request($1::integer, $2::integer, $3, $4, $5, $6, $7, $8, $9, $10)`

// queueClaim claims a key, without a lease until the transaction ends, and reads the key's row into r.
func (p *Postgres) queueClaim(q *pgx.Batch, e *Entry, lease *time.Duration, ttl time.Duration, r *row) {
	class, object := e.lock()
	q.Queue(p.db.SQL(claimSQL), class, object, e.ID[:], e.KeyHash[:], e.Tenant, e.Scope, e.Route, e.Fingerprint[:],
		lease, ttl).QueryRow(func(one pgx.Row) error { return one.Scan(append([]any{&r.fence}, r.columns()...)...) })
}

// Claim is [Store]'s.
func (p *Postgres) Claim(ctx context.Context, e Entry,
	lease, ttl time.Duration) (fence int64, found Finding, err error) {
	var r row
	q := &pgx.Batch{}
	q.Queue(`begin isolation level ` + string(db.Pinned.IsoLevel)) // the claim sees what ended before it got the lock
	p.queueClaim(q, &e, &lease, ttl, &r)
	q.Queue(`commit`)
	err = p.ask(ctx, func(ctx context.Context) error { return p.db.Pool.SendBatch(ctx, q).Close() })
	switch {
	case err != nil:
		return 0, Finding{}, storeError("claim a key", err)
	case r.fence != nil:
		return *r.fence, Finding{}, nil
	}
	found, err = r.finding(InProgress)
	return 0, found, storeError("claim a key", err)
}

const extendSQL = `
update firstseen.idempotency set lease_until = now() + $3::interval
where id = $1 and fence = $2 and status is null and lease_until is not null`

// Extend is [Store]'s.
func (p *Postgres) Extend(ctx context.Context, id ID, fence int64, lease time.Duration) error {
	return p.ofClaim(ctx, "extend a claim", extendSQL, id[:], fence, lease)
}

const completeSQL = `
update firstseen.idempotency set status = $3, headers = $4, body = $5, lease_until = null
where id = $1 and fence = $2 and (lease_until is not null or status is not null)`

// Complete is [Store]'s.
func (p *Postgres) Complete(ctx context.Context, id ID, fence int64, a Answer) error {
	return p.ofClaim(ctx, "store an answer", completeSQL, id[:], fence, a.Status, encodeHeader(a.Header), a.Body)
}

const releaseSQL = `
update firstseen.idempotency set lease_until = null
where id = $1 and fence = $2 and status is null`

// Release is [Store]'s.
func (p *Postgres) Release(ctx context.Context, id ID, fence int64) error {
	err := p.ofClaim(ctx, "release a claim", releaseSQL, id[:], fence)
	if errors.Is(err, ErrClaimLost) {
		return nil
	}
	return err
}

// ofClaim runs a statement that changes the row of a claim, which is lost where it changes none.
func (p *Postgres) ofClaim(ctx context.Context, op, sql string, args ...any) error {
	var tag pgconn.CommandTag
	err := p.ask(ctx, func(ctx context.Context) (err error) {
		tag, err = p.db.Pool.Exec(ctx, p.db.SQL(sql), args...)
		return err
	})
	if err == nil && tag.RowsAffected() == 0 {
		return ErrClaimLost
	}
	return storeError(op, err)
}
