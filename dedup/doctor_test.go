package dedup_test

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
	s := stageOn(t, db, explained(t, db.DSN, &plans), dedup.Config{})
	for _, sql := range []string{
		`insert into firstseen.message_dedup (scope_id, message_id) select $1, md5(n::text)::uuid from generate_series(1, 10000) n`,
		`insert into firstseen.inbox (received_at, scope_id, message_id, topic, seq)
			select now() - n % 2 * interval '1 second', $1, md5(n::text)::uuid, 'orders', n from generate_series(1, 10000) n`,
		`insert into firstseen.dead_letters (scope_id, message_id, topic, reason) select $1, md5(n::text)::uuid, 'orders', 'permanent' from generate_series(1, 10000) n`,
		`insert into firstseen.conflicts ("offset", scope_id, "partition", message_id, topic, fingerprint)
			select n, $1, 0, md5(n::text)::uuid, 'orders', '' from generate_series(1, 10000) n`,
		`insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic)
			select scope_id, md5(n::text)::uuid, now(), inbox, handler, 'orders' from firstseen.scopes, generate_series(1, 10000) n where scope_id = $1`,
	} {
		_, err := db.Pool.Exec(t.Context(), sql, s.scope)
		require.NoError(t, err)
	}
	_, err := db.Pool.Exec(t.Context(), `analyze`)
	require.NoError(t, err)
	plans.Reset()

	ctx := t.Context()
	_, byKey, err := s.store.LookupPlan(ctx)
	require.NoError(t, err)
	require.True(t, byKey)
	_, err = s.store.EmptyIDs(ctx)
	require.NoError(t, err)
	clashes, err := s.store.Clashes(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 10000, clashes.Copies)
	newest, err := s.store.Newest(ctx, 5000)
	require.NoError(t, err)
	require.EqualValues(t, 5000, newest.Messages)
	_, err = s.store.Repeats(ctx, 5000)
	require.NoError(t, err)
	ages, err := s.store.HandlerAges(ctx, 5000)
	require.NoError(t, err)
	require.True(t, ages[0].Active)
	_, err = s.store.Stuck(ctx, time.Minute)
	require.NoError(t, err)
	_, err = s.store.Publication(ctx, time.Minute)
	require.NoError(t, err)

	text := plans.String()
	require.Regexp(t, `Index (Only )?Scan Backward using inbox_\d+_pkey`, text)
	require.NotRegexp(t, `Seq Scan on (message_dedup|inbox_|dead_letters|conflicts)`, text)
	require.NotRegexp(t, `Sort Key: i\.received_at.*\n.*->  (Seq|Append)`, text)
}
