package dedup_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

// tenants makes scopes of tenants of handler h, and lanes with a message each in every one of them, topic orders or
// other by turns, due at the given time.
func (s *stage) tenants(scopes, lanesOfEach int, due string) {
	s.t.Helper()
	s.exec(`insert into firstseen.scopes (inbox, handler, tenant) select 'test', 'h', n::text from generate_series(1, $1) n`, scopes)
	s.exec(`with s as (select * from firstseen.scopes where tenant <> ''),
		m as (
			insert into firstseen.parked (scope_id, lane, "offset", message_id, topic, "partition", payload)
			select s.scope_id, gen_random_uuid(), n, gen_random_uuid(), case when n % 2 = 0 then 'orders' else 'other' end, 0, 'v'
			from s cross join generate_series(1, $1) n
			returning scope_id, lane, topic, "partition")
		insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic, "partition")
		select m.scope_id, m.lane, `+due+`, s.inbox, s.handler, m.topic, m."partition" from m join s using (scope_id)`, lanesOfEach)
	s.exec(`vacuum analyze firstseen.scopes, firstseen.parked, firstseen.lanes`)
}

// blocks is how many of the server's blocks a statement looks at, a measure of its work that no other load changes.
func (s *stage) blocks(sql string, args ...any) int {
	s.t.Helper()
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	var text string
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `explain (analyze, buffers, format json) `+sql,
		args...).Scan(&text))
	require.NoError(s.t, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

const claimSQL = `select * from firstseen.claim_lanes('test', 'h', 500, 60000)`

func TestClaimsCostNothingWhileNoLaneIsDue(t *testing.T) {
	s := newStage(t)
	s.tenants(50_000, 2, `now() + interval '1 h'`)
	for range 7 { // more than it takes for a generic plan
		s.blocks(claimSQL)
	}
	require.Less(t, s.blocks(claimSQL), 20, "with 50,000 tenants and 100,000 lanes")
}

func TestClaimReadsNoMoreLanesThanItTakes(t *testing.T) {
	db := deduptest.New(t)
	var plans strings.Builder
	s := stageOn(t, db, deduptest.Explained(t, db.DSN, &plans), dedup.Config{})
	s.tenants(20_000, 10, `now() + (random() - 0.5) * interval '1 h'`)
	claimed := func(topic string) int {
		return s.count(`select count(*) from firstseen.lanes where claims > 0 and topic = $1`, topic)
	}
	for _, paused := range []string{"", "orders"} {
		if paused != "" {
			_, err := operate.Of(s.store).Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: paused},
				operate.By{Actor: "night shift", Why: "test"})
			require.NoError(t, err)
		}
		plans.Reset()
		before := claimed("orders")
		for range 7 {
			require.Less(t, s.blocks(claimSQL), 500*40, "%q is paused", paused)
		}
		require.Equal(t, paused == "orders", before == claimed("orders"))
		require.Regexp(t, `Index Scan using lanes_due on lanes`, plans.String())
		require.Regexp(t, `Index Cond: .*due_at <= statement_timestamp\(\)`, plans.String())
		require.NotRegexp(t, `(Seq|Heap) Scan on (lanes|scopes)|Sort`, plans.String())
	}
	require.Equal(t, 14*500, claimed("orders")+claimed("other"))
}

func TestLanesAreClaimedInTheOrderOfTheirTimeWhateverTheTenant(t *testing.T) {
	s := newStage(t)
	s.tenants(10, 5, `now() - random() * interval '1 h'`)
	s.exec(`update firstseen.lanes set claim = (select count(*) from firstseen.lanes e where e.due_at < lanes.due_at)`)
	claims, err := s.store.ClaimLanes(t.Context(), "h", 20, time.Minute)
	require.NoError(t, err)
	require.Len(t, claims, 20)
	for _, c := range claims {
		require.LessOrEqual(t, c.Number, 20, "the first twenty by their time")
		require.Equal(t, 1, s.count(`select count(*) from firstseen.scopes where scope_id = $1 and tenant = $2`,
			c.Scope, c.Tenant))
	}
}

func TestLoadReadsEachMessageOnce(t *testing.T) {
	db := deduptest.New(t)
	var plans strings.Builder
	pool := deduptest.Explained(t, db.DSN, &plans)
	s := stageOn(t, db, pool, dedup.Config{})
	s.tenants(2000, 10, `now()`)
	_, err := pool.Exec(t.Context(), `set auto_explain.log_analyze = on`)
	require.NoError(t, err)
	for range 3 {
		claims, err := s.store.ClaimLanes(t.Context(), "h", 500, time.Minute)
		require.NoError(t, err)
		require.Len(t, claims, 500)
		plans.Reset()
		tx, batch, err := s.store.LoadLanes(t.Context(), claims, 1, 0)
		require.NoError(t, err)
		require.Len(t, batch.Entries, 500)
		tx.Rollback(t.Context())
		require.Contains(t, plans.String(), "WindowAgg")
		require.NotRegexp(t, `(Seq|Heap) Scan on (parked|lanes)`, plans.String())
		require.NotRegexp(t, `Rows Removed by Join Filter: \d{4}`, plans.String())
	}
}

// The last lanes of those that are loaded get fewer messages, or none but their lock.
func TestLoadIsBoundedByTheSizeOfContents(t *testing.T) {
	s := newStage(t)
	s.tenants(3, 1, `now()`)
	s.exec(`delete from firstseen.parked where scope_id = (select min(scope_id) from firstseen.lanes)`)
	s.exec(`insert into firstseen.parked (scope_id, lane, "offset", message_id, topic, "partition", payload)
		select l.scope_id, l.lane, 10 + n, gen_random_uuid(), l.topic, 0, convert_to(repeat('x', 9 << 20), 'UTF8')
		from firstseen.lanes l cross join generate_series(1, 2) n
		where l.scope_id > (select min(scope_id) from firstseen.lanes)`)
	claims, err := s.store.ClaimLanes(t.Context(), "h", 10, time.Minute)
	require.NoError(t, err)
	tx, batch, err := s.store.LoadLanes(t.Context(), claims, 10, 0)
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	require.Len(t, batch.Entries, 2, "of the second lane: the small message, and one of those of 9 MiB")
	require.Equal(t, batch.Entries[0].Lane, batch.Entries[1].Lane)
	require.Less(t, batch.Entries[0].Message.Offset, batch.Entries[1].Message.Offset)
	free, err := s.store.ClaimLanes(t.Context(), "h", 10, time.Minute)
	require.NoError(t, err)
	require.Empty(t, free)
	require.NotEqual(t, uuid.Nil, batch.Entries[0].Message.ID)
}
