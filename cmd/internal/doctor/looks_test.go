package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// The doctor is for systems in trouble: what it reads of a large table it reads by an index.
func TestLooksForTroubleScanNoLargeTable(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	var plans strings.Builder
	store, err := dedup.Open(t.Context(), db.Pool, dedup.Config{Inbox: inbox})
	require.NoError(t, err)
	scopes, err := store.Scopes(t.Context(), []dedup.ScopeKey{{Handler: handler}})
	require.NoError(t, err)
	for _, sql := range []string{
		`insert into firstseen.message_dedup (scope_id, message_id) select $1, md5(n::text)::uuid from generate_series(1, 10000) n`,
		`insert into firstseen.inbox (received_at, scope_id, message_id, topic, seq)
			select now() - n % 2 * interval '1 second', $1, md5(n::text)::uuid, 'orders', n from generate_series(1, 10000) n`,
		`insert into firstseen.dead_letters (scope_id, message_id, topic, reason) select $1, md5(n::text)::uuid, 'orders', 'permanent' from generate_series(1, 10000) n`,
		`insert into firstseen.conflicts ("offset", scope_id, "partition", message_id, topic, fingerprint)
			select n, $1, 0, md5(n::text)::uuid, 'orders', '' from generate_series(1, 10000) n`,
		`insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic)
			select scope_id, md5(n::text)::uuid, now(), inbox, handler, 'orders' from firstseen.scopes, generate_series(1, 10000) n where scope_id = $1`,
		`insert into firstseen.idempotency (id, key_hash, tenant, scope, route, fingerprint, expires_at)
			select sha256(n::text::bytea), sha256(n::text::bytea), '', '', $1::int::text, sha256(n::text::bytea), now() + n * interval '1 second' from generate_series(1, 10000) n`,
		`insert into firstseen.enqueued (inbox, tenant, topic, message_id, request_hash, enqueued_by)
			select s.inbox, '', 'orders', md5(n::text)::uuid, '', 'shop' from firstseen.scopes s, generate_series(1, 10000) n where s.scope_id = $1`,
	} {
		_, err := db.Pool.Exec(t.Context(), sql, scopes.IDs[0])
		require.NoError(t, err)
	}
	_, err = db.Pool.Exec(t.Context(), `analyze`)
	require.NoError(t, err)
	p := newTarget(Case{Inbox: inbox, Timeout: time.Minute})
	p.pool = deduptest.Explained(t, db.DSN, &plans)

	ctx := t.Context()
	_, byKey, err := p.lookupPlan(ctx)
	require.NoError(t, err)
	require.True(t, byKey)
	_, err = p.emptyIDs(ctx)
	require.NoError(t, err)
	clashes, err := p.clashes(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 10000, clashes.Copies)
	newest, err := p.newest(ctx, 5000)
	require.NoError(t, err)
	require.EqualValues(t, 5000, newest.Messages)
	_, err = p.repeats(ctx, 5000)
	require.NoError(t, err)
	ages, err := p.handlerAges(ctx, 5000)
	require.NoError(t, err)
	require.True(t, ages[0].Active)
	_, err = p.stuck(ctx, time.Minute)
	require.NoError(t, err)
	_, err = p.publication(ctx, time.Minute)
	require.NoError(t, err)

	_, err = p.expired(ctx, time.Minute)
	require.NoError(t, err)
	_, err = p.leftBehind(ctx, time.Minute, 1000)
	require.NoError(t, err)
	routes, err := p.freshKeys(ctx, 1000)
	require.NoError(t, err)
	require.EqualValues(t, 1000, routes[0].Requests)
	_, err = p.sharedKeys(ctx, 10, 1000)
	require.NoError(t, err)
	_, err = p.idle(ctx, time.Minute)
	require.NoError(t, err)
	_, err = p.enqueued(ctx, time.Now().Add(-time.Hour), 1000)
	require.NoError(t, err)

	text := plans.String()
	require.Regexp(t, `Index (Only )?Scan Backward using inbox_\d+_pkey`, text)
	require.NotRegexp(t, `Seq Scan on (message_dedup|inbox_|dead_letters|conflicts|idempotency|enqueued)`, text)
	require.NotRegexp(t, `Sort Key: i\.received_at.*\n.*->  (Seq|Append)`, text)
}

// An earlier version stored what a timestamptz can't hold as plus or minus infinity, and later years as they are.
func TestTimestampsOfEarlierVersionsAreCounted(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	store, err := dedup.Open(t.Context(), db.Pool, dedup.Config{Inbox: inbox})
	require.NoError(t, err)
	scopes, err := store.Scopes(t.Context(), []dedup.ScopeKey{{Handler: handler}})
	require.NoError(t, err)
	for i, text := range []string{"infinity", "-infinity", "1969-12-31 23:59:59.999+00", "57878-03-04 05:06:07.008+00",
		"4713-01-01 00:00:00+00 BC", "294276-01-01 00:00:00.001+00"} {
		_, err := db.Pool.Exec(t.Context(),
			`insert into firstseen.inbox (scope_id, message_id, topic, seq, produced_at)
			values ($1, gen_random_uuid(), 'orders', $2, $3::text::timestamptz)`, scopes.IDs[0], i, text)
		require.NoError(t, err)
	}
	p := newTarget(Case{Inbox: inbox, Timeout: time.Minute})
	p.pool = db.Pool
	n, err := p.newest(t.Context(), 1000)
	require.NoError(t, err)
	require.EqualValues(t, 5, n.Untimed)
	require.Zero(t, n.Early)
}
