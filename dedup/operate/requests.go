package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Request tells of an HTTP request with an idempotency key, of package idempotency: nothing of what was asked for or
// answered, but the answer's status.
type Request struct {
	// Tenant and Scope are the caller's, as far as they are kept, and Route is method and route. They are empty where
	// the key is new and its transaction is not over.
	Tenant, Scope, Route string
	State                RequestState
	// Status is the answer's; 0: there is none.
	Status int
	// Fence is the number of the last claim on the key.
	Fence int64
	// LeaseUntil is the end of a process's claim on it; zero where none has one.
	LeaseUntil time.Time
	// CreatedAt is the time at which the key came first, and ExpiresAt that from which it counts no more; zero where
	// that shows later.
	CreatedAt, ExpiresAt time.Time
}

// RequestState is a request's state.
type RequestState string

// The states.
const (
	// RequestAnswered has an answer, which is given again.
	RequestAnswered RequestState = "answered"
	// RequestRunning is being worked on: a transaction holds it, or a lease that is not over.
	RequestRunning RequestState = "running"
	// RequestAbandoned was claimed by a process that did not come to an end within its lease, and by nobody since.
	RequestAbandoned RequestState = "abandoned"
	// RequestOpen has no answer, and nobody is at it: its last try failed and left nothing.
	RequestOpen RequestState = "open"
	// RequestExpired counts no more: its key is new.
	RequestExpired RequestState = "expired"
)

// requestsSQL finds what transactions are at work on by their advisory locks, whose two numbers are the first bits of
// the key's hash and of the request's ID: the row of a key that is new does not show before they end, nor whose it is.
const requestsSQL = `
with working as (
	select l.objid::bigint as object, coalesce(a.xact_start, now()) as since
	from pg_locks l left join pg_stat_activity a using (pid)
	where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
		and l.classid::bigint = ('x' || encode(substr($1::bytea, 1, 4), 'hex'))::bit(32)::bigint
		and l.database = (select d.oid from pg_database d where d.datname = current_database())),
known as (
	select i.*, ('x' || encode(substr(i.id, 1, 4), 'hex'))::bit(32)::bigint as object
	from firstseen.idempotency i
	where i.key_hash = $1)
select k.tenant, k.scope, k.route,
	case
		when k.lease_until > now() then 'running'
		when k.object in (select w.object from working w) then 'running'
		when k.expires_at <= now() then 'expired'
		when k.status is not null then 'answered'
		when k.lease_until is not null then 'abandoned'
		else 'open'
	end,
	coalesce(k.status, 0), k.fence, k.lease_until, k.created_at, k.expires_at
from known k
where $2 in ('', k.tenant)
union all
select '', '', '', 'running', 0, 0, null, w.since, null
from working w
where $2 = '' and w.object not in (select k.object from known k)
order by 8 desc
limit 100`

// requests lists those with a key, of a tenant (empty: of any), the last first, up to 100.
func (in *Inbox) requests(ctx context.Context, key, tenant string) ([]Request, error) {
	hash := idempotency.HashKey(key)
	return db.Collect(ctx, in.db, func(row pgx.CollectableRow) (r Request, err error) {
		var lease, expires *time.Time
		err = row.Scan(&r.Tenant, &r.Scope, &r.Route, &r.State, &r.Status, &r.Fence, &lease, &r.CreatedAt, &expires)
		r.LeaseUntil, r.ExpiresAt = db.Deref(lease), db.Deref(expires)
		return r, err
	}, requestsSQL, hash[:], tenant)
}

// KeyFilter narrows what an idempotency key is looked for in; each field that is set does.
type KeyFilter struct {
	// Tenant is that of the requests and messages.
	Tenant string
	// Topic is the messages'.
	Topic string
}

// ExplainKey tells what is known of an idempotency key: of requests that came with it to programs with package
// idempotency, and of the message that is known by it, as those are that the ingress makes. Nothing that is told has
// the key in it, but where a message's ID is the same text.
func (in *Inbox) ExplainKey(ctx context.Context, key string, f KeyFilter) (Explanation, error) {
	e := Explanation{Asked: "a key that no message can have", Inbox: in.db.Inbox}
	ids, err := identity.ParseIDs(key)
	if err == nil {
		e.Asked = ids[0].String()
	}
	if err := in.see(ctx, &e, ids); err != nil {
		return Explanation{}, fmt.Errorf("explain an idempotency key: %w", err)
	}
	e.Seen = slices.DeleteFunc(e.Seen, func(s Sighting) bool { return !f.has(&s) })
	if len(e.Seen) == 0 {
		e.Unseen = nil
	}
	if e.Requests, err = in.requests(ctx, key, f.Tenant); err != nil {
		return Explanation{}, fmt.Errorf("explain an idempotency key: %w", err)
	}
	e.byKey, e.canBeID = true, len(ids) > 0
	e.Sentences = e.tellAll()
	return e, nil
}

// has says that a sighting is not another tenant's or topic's, as far as that is known.
func (f *KeyFilter) has(s *Sighting) bool {
	return (f.Tenant == "" || f.Tenant == s.Tenant) &&
		(f.Topic == "" || s.Stored == nil || s.Stored.Message.Topic == f.Topic)
}

// tellKey puts the facts into sentences: requests first, then the message, where the key can be one's.
func (e *Explanation) tellKey(canBeID bool) []string {
	var t teller
	for i := range e.Requests {
		e.Requests[i].tell(&t)
	}
	if len(e.Requests) == 0 {
		t.say("No HTTP request with this key is known: none came to a program that keeps its answers in this schema, " +
			"it is of another tenant, or its answer has expired and was deleted.")
	}
	if canBeID && (len(e.Seen) > 0 || len(e.Requests) == 0) {
		return append(t.sentences, e.tell()...)
	}
	return t.sentences
}

func (r *Request) tell(t *teller) {
	if r.Route == "" {
		t.say("A request came at %s. It is being worked on in a transaction; twins are told to come again. Whose it is "+
			"shows when that ends.", clock(r.CreatedAt))
		return
	}
	who := []string{r.Route}
	if r.Tenant != "" {
		who = append(who, "of tenant "+r.Tenant)
	}
	if r.Scope != "" {
		who = append(who, "in scope "+r.Scope)
	}
	t.say("%s came first at %s.", strings.Join(who, " "), clock(r.CreatedAt))
	switch r.State {
	case RequestAnswered:
		t.say("It was answered %d, which is given again until %s.", r.Status, clock(r.ExpiresAt))
	case RequestExpired:
		t.say("That expired at %s: the key is new, and the next request with it runs.", clock(r.ExpiresAt))
	case RequestRunning:
		t.say("It is being worked on%s; twins are told to come again.", r.lease())
	case RequestAbandoned:
		t.say("It was claimed%s, and neither answered nor claimed since: its process has ended, or hangs. "+
			"What it does elsewhere may have happened. The next try runs, with a greater fence.", r.lease())
	case RequestOpen:
		t.say("It has no answer, and nothing is at work on it: its last try failed, or its process ended, and nothing " +
			"of it is left. The next try runs.")
	}
}

// lease tells of a claim, if there is one.
func (r *Request) lease() string {
	if r.LeaseUntil.IsZero() {
		return ""
	}
	return fmt.Sprintf(" until %s (fence %d)", clock(r.LeaseUntil), r.Fence)
}
