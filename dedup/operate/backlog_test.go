package operate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

// parkMany parks messages of one scope, two to a lane, as many as are asked for; the first fail ones failed before.
func (s *stage) parkMany(scope int32, n, failed int) {
	s.t.Helper()
	s.exec(`with m as (
			insert into firstseen.parked (scope_id, lane, "offset", message_id, topic, "partition", attempts, parked_at)
			select $1, md5(($1::int)::text || (n / 2)::text)::uuid, n, gen_random_uuid(), 'orders', 0,
				case when n < $3 then 2 else 0 end, now() - interval '1 hour' + n * interval '1 ms'
			from generate_series(0, $2 - 1) n
			returning scope_id, lane, topic, "partition")
		insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic, "partition")
		select distinct m.scope_id, m.lane, now(), s.inbox, s.handler, m.topic, m."partition"
		from m join firstseen.scopes s using (scope_id)`, scope, n, failed)
}

func TestBacklogCountsByHandlerWhateverTheTenant(t *testing.T) {
	s := newStage(t)
	tenants := s.scopes(dedup.ScopeKey{Handler: "book", Tenant: "a"}, dedup.ScopeKey{Handler: "book", Tenant: "b"},
		dedup.ScopeKey{Handler: "idle"})
	s.parkMany(tenants[0], 4, 1)
	s.parkMany(tenants[1], 2, 2)
	s.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, reason) select $1, gen_random_uuid(), 'orders', 'x' from generate_series(1, 3)`, tenants[0])
	var oldest time.Time
	require.NoError(t, s.admin.QueryRow(t.Context(), `select min(parked_at) from firstseen.parked`).Scan(&oldest))
	other, err := dedup.Open(t.Context(), s.pool, dedup.Config{Inbox: "other"})
	require.NoError(t, err)
	found, err := operate.Of(other).Backlog(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
	found, err = s.inbox.Backlog(t.Context())
	require.NoError(t, err)
	require.Equal(t, []operate.Backlog{
		{Handler: "book", Pending: 3, Failed: 3, Dead: 3, Lanes: 3, OldestAt: oldest},
		{Handler: "h"},
		{Handler: "idle"},
	}, found)
}

func TestBacklogCostsNothingForTenantsWithoutAny(t *testing.T) {
	db := deduptest.New(t)
	var plans strings.Builder
	pool := deduptest.Explained(t, db.DSN, &plans)
	s := stageOn(t, db, pool)
	s.exec(`insert into firstseen.scopes (inbox, handler, tenant) select 'test', h, n::text from unnest(array['book', 'h']) h, generate_series(1, 20000) n`)
	s.exec(`vacuum analyze firstseen.scopes`)
	s.parkMany(s.scope, 4, 1)
	_, err := pool.Exec(t.Context(), `set auto_explain.log_analyze = on`)
	require.NoError(t, err)
	plans.Reset()
	found, err := s.inbox.Backlog(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.EqualValues(t, 4, found[1].Parked())
	require.Contains(t, plans.String(), "parked_pkey")
	require.NotRegexp(t, `rows=\d{4,}(\.\d+)? loops`, plans.String(), "in 40,000 scopes")
	require.NotRegexp(t, `loops=\d{3}`, plans.String())
}

func TestBacklogIsCappedAndScansNoTable(t *testing.T) {
	db := deduptest.New(t)
	var plans strings.Builder
	s := stageOn(t, db, deduptest.Explained(t, db.DSN, &plans))
	few := s.scopes(dedup.ScopeKey{Handler: "few"})[0]
	s.parkMany(s.scope, operate.BacklogCap+1000, 10)
	s.parkMany(few, 3, 0)
	_, err := db.Pool.Exec(t.Context(), `analyze firstseen.parked, firstseen.lanes`)
	require.NoError(t, err)
	plans.Reset()
	found, err := s.inbox.Backlog(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{"few", int64(3), false}, []any{found[0].Handler, found[0].Parked(), found[0].Capped})
	require.Equal(t, []any{"h", int64(operate.BacklogCap + 1), true},
		[]any{found[1].Handler, found[1].Parked(), found[1].Capped})
	text := plans.String()
	require.Contains(t, text, "Index Scan using parked_pkey on parked")
	require.NotRegexp(t, `(Seq|Heap) Scan on (parked|lanes|dead_letters)`, text)
}
