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

func (s *stage) size() operate.Size {
	s.t.Helper()
	size, err := s.inbox.Size(s.t.Context())
	require.NoError(s.t, err)
	return size
}

func TestSizeIsRightToAFewPercentAndScansNothing(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	var plans strings.Builder
	s := stageOn(t, db, deduptest.Explained(t, db.DSN, &plans))
	require.Zero(t, s.size().Tables[0].Rows)
	require.True(t, s.size().Growth.From.IsZero())
	small := s.scopes(dedup.ScopeKey{Handler: "small", Tenant: "blue"})[0]
	s.exec(`alter table firstseen.message_dedup set (autovacuum_enabled = off)`)
	s.exec(`insert into firstseen.message_dedup (scope_id, message_id, first_seen_at)
		select case when n % 4 = 0 then $2::int else $1 end, gen_random_uuid(), now() from generate_series(1, 100000) n`, s.scope, small)
	s.exec(`insert into firstseen.inbox (scope_id, message_id, topic) select $1, gen_random_uuid(), 'orders' from generate_series(1, 20000)`, s.scope)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			s.exec(`analyze firstseen.message_dedup, firstseen.inbox`)
		}
		plans.Reset()
		size := s.size()
		ids := size.Table("message_dedup")
		require.InEpsilon(t, 100_000, ids.Rows, 0.05)
		require.InEpsilon(t, 20_000, size.Table("inbox").Rows, 0.05)
		require.EqualValues(t, s.count(`select pg_total_relation_size('firstseen.message_dedup')`), ids.Bytes)
		require.GreaterOrEqual(t, size.Used, ids.Bytes)
		require.Len(t, size.Scopes, 2)
		require.Equal(t, []string{"test", "h", ""}, []string{size.Scopes[0].Inbox, size.Scopes[0].Handler,
			size.Scopes[0].Tenant})
		require.Equal(t, "blue", size.Scopes[1].Tenant)
		require.InDelta(t, 0.25, size.Scopes[1].Share, 0.05)
		require.InEpsilon(t, 25_000, size.Scopes[1].Rows, 0.2)
		require.Equal(t, analyzed, !size.ScopesAt.IsZero())
		require.NotRegexp(t, `Seq Scan on (message_dedup|inbox|parked|dead_letters)`, plans.String())
	}
	bloat := s.size().IDIndex
	require.InDelta(t, 1.4, bloat.Bloat(), 0.4, "random IDs")
	s.exec(`reindex index firstseen.message_dedup_pkey`)
	require.InDelta(t, 1, s.size().IDIndex.Bloat(), 0.03)
}

func TestSizeTellsTheGrowthOfWholeDays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	today := deduptest.InboxDay(t, s.admin, 0)
	for back, rows := range map[int]int{1: 300, 2: 100, 3: 1000} {
		day := deduptest.InboxDay(t, s.admin, back)
		s.exec(`insert into firstseen.inbox (scope_id, message_id, topic, received_at) select $1, gen_random_uuid(), 'orders', $2::timestamptz + interval '1 h' from generate_series(1, $3::int)`, s.scope, day, rows)
		s.exec(`insert into firstseen.message_dedup (scope_id, message_id) select $1, gen_random_uuid() from generate_series(1, $2::int)`, s.scope, rows)
	}
	size := s.size()
	require.Equal(t, today.AddDate(0, 0, -3), size.FirstDay.UTC())
	require.Equal(t, today.AddDate(0, 0, -1), size.LastDay.UTC())
	require.EqualValues(t, 1400, size.Table("inbox").Rows)
	g := size.Growth
	require.Equal(t, today.AddDate(0, 0, -2), g.From, "the first day may not be whole")
	require.Equal(t, today, g.To)
	require.EqualValues(t, 200, g.IDs)
	require.Positive(t, g.InboxBytes)
	require.InEpsilon(t, size.Table("message_dedup").Bytes/7, g.IDBytes, 0.01)
}

func TestForecastTakesRetentionIntoAccount(t *testing.T) {
	const gib = 1 << 30
	now := time.Date(2026, 3, 11, 0, 0, 0, 0, time.UTC)
	s := operate.Size{At: now, Used: 40 * gib, Began: now.AddDate(0, 0, -10), FirstDay: now.AddDate(0, 0, -10),
		Growth: operate.Growth{IDBytes: gib, InboxBytes: 5 * gib}}
	const d = 24 * time.Hour
	for name, c := range map[string]struct {
		ids, inbox time.Duration
		days       float64
		full       bool
	}{
		"for ever":                  {0, 0, 10, true},
		"inbox reaches its age":     {0, 12 * d, 50, true},
		"inbox is at its age":       {0, 7 * d, 60, true},
		"IDs reach theirs as well":  {20 * d, 12 * d, 0, false},
		"IDs stop, the inbox grows": {10 * d, 0, 12, true},
	} {
		t.Run(name, func(t *testing.T) {
			days, full := s.FullIn(100*gib, c.ids, c.inbox)
			require.Equal(t, c.full, full)
			if full {
				require.InDelta(t, c.days, days, 0.01)
			}
		})
	}
	days, full := s.FullIn(30*gib, 0, 0)
	require.True(t, full)
	require.Zero(t, days)
	_, full = (&operate.Size{At: now, Used: gib}).FullIn(2*gib, 0, 0)
	require.False(t, full, "no growth is known")
}
