package deduptest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

func TestTemplateOfAnotherDayIsMadeAnewAndNoneIsLeft(t *testing.T) {
	own := StartServer(t, pgserver.Config{})
	t.Setenv("FIRSTSEEN_TEST_POSTGRES", own.DSN("postgres"))
	at := time.Date(2026, 3, 1, 23, 59, 59, 0, time.UTC)
	s := &server{now: func() time.Time { return at }}
	admin, before, err := s.migrated()
	require.NoError(t, err)
	at = at.Add(time.Second)
	_, after, err := s.migrated()
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	_, again, err := s.migrated()
	require.NoError(t, err)
	require.Equal(t, after, again)
	require.NoError(t, s.stop())
	require.Equal(t, []string{"postgres"}, databases(t, admin))
}

func TestADayOfTheInboxIsMadeUnlessItIsThere(t *testing.T) {
	db := New(t)
	days := func() (n int) {
		require.NoError(t, db.Pool.QueryRow(t.Context(), `select count(*) from pg_inherits
			where inhparent = 'firstseen.inbox'::regclass`).Scan(&n))
		return n
	}
	before := days()
	today := InboxDay(t, db.Pool, 0)
	require.Equal(t, before, days())
	require.Equal(t, today.AddDate(0, 0, -3), InboxDay(t, db.Pool, 3))
	require.Equal(t, before+1, days())
	var in string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `insert into firstseen.inbox (received_at, scope_id, message_id, topic)
		values ($1, 1, gen_random_uuid(), 'x') returning tableoid::regclass::text`,
		today.AddDate(0, 0, -2).Add(-time.Microsecond)).Scan(&in))
	require.Contains(t, in, "inbox_"+today.AddDate(0, 0, -3).Format("20060102"))
}

func TestMidnightIsWaitedForWhereItIsNear(t *testing.T) {
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for before, want := range map[time.Duration]time.Duration{
		0: 0, time.Hour: 0, 2 * time.Minute: 0, time.Minute: time.Minute + time.Second, 1: time.Second + 1,
	} {
		require.Equal(t, want, untilMorning(midnight.Add(-before).In(time.FixedZone("", 5*3600))), before)
	}
}
