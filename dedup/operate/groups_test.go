package operate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestDeadLettersThatFailedAlikeAreOneGroup(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(3, 0, 1, "permanent") // no account 0, 1 and 2
	d.bury(2, 10, 1, "killed")
	d.exec(`update firstseen.dead_letters set error = 'order ' || gen_random_uuid() || E' is not there\n' where reason = 'killed'`)
	other := d.scopes(dedup.ScopeKey{Handler: "ship"})[0]
	d.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, reason) values ($1, '00000000-0000-4000-8000-000000000001', 't', 'permanent')`, other)
	groups, more, err := d.inbox.DeadGroups(t.Context(), operate.Filter{})
	require.NoError(t, err)
	require.False(t, more)
	told := func(groups []operate.ErrorGroup) (all [][4]any) {
		for _, g := range groups {
			all = append(all, [4]any{g.Handler, g.Reason, g.Error, g.Count})
		}
		return all
	}
	require.Equal(t, [][4]any{{"h", "permanent", "no account #", 3}, {"h", "killed", "order # is not there", 2},
		{"ship", "permanent", "", 1}}, told(groups))
	require.Equal(t, uuid.MustParse("00000000-0000-4000-8000-000000000001"), groups[2].Example)
	require.WithinDuration(t, time.Now(), groups[2].OldestAt, time.Hour)
	groups, _, err = d.inbox.DeadGroups(t.Context(), operate.Filter{Reason: "killed", Handler: "h"})
	require.NoError(t, err)
	require.Len(t, groups, 1)
}

func TestLanesAreGroupedByTheMessageThatTheyWaitFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	park := func(scope, offset int32, lane uuid.UUID, attempts int, reason, text any) {
		d.exec(`insert into firstseen.parked (scope_id, lane, "offset", message_id, topic, "partition", attempts, reason, error)
			values ($1, $2, $3, gen_random_uuid(), 'orders', 0, $4, $5, $6)`, scope, lane, offset, attempts, reason, text)
		d.exec(`insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic, "partition")
			select s.scope_id, $2, now() + interval '1 h', s.inbox, s.handler, 'orders', 0 from firstseen.scopes s where s.scope_id = $1
			on conflict do nothing`, scope, lane)
	}
	ship := d.scopes(dedup.ScopeKey{Handler: "ship"})[0]
	a, b := uuid.New(), uuid.New()
	park(d.scope, 1, a, 2, "handler_failed", "no account 7")
	park(d.scope, 2, a, 0, nil, nil) // waits behind it
	park(d.scope, 1, b, 5, "handler_failed", "no account 12")
	park(ship, 1, uuid.New(), 0, nil, nil)
	groups, more, err := d.inbox.LaneGroups(t.Context(), "")
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, groups, 2)
	require.Equal(t, []any{"h", "handler_failed", "no account #", 2}, []any{groups[0].Handler, groups[0].Reason, groups[0].Error, groups[0].Count})
	require.WithinDuration(t, time.Now().Add(time.Hour), groups[0].NextAt, 10*time.Minute)
	require.Equal(t, []any{"ship", "", "", 1}, []any{groups[1].Handler, groups[1].Reason, groups[1].Error, groups[1].Count})
	groups, _, err = d.inbox.LaneGroups(t.Context(), "ship")
	require.NoError(t, err)
	require.Len(t, groups, 1)
}

func TestGroupsLookAtNoMoreThanTheySay(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	var plans strings.Builder
	d := desk{stageOn(t, db, deduptest.Explained(t, db.DSN, &plans))}
	d.bury(operate.GroupLooks+5000, 0, 7, "permanent")
	d.exec(`with m as (
			insert into firstseen.parked (scope_id, lane, "offset", message_id, topic, "partition", error)
			select $1, gen_random_uuid(), n, gen_random_uuid(), 'orders', 0, 'no' from generate_series(1, $2) n returning *)
		insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic, "partition")
		select scope_id, lane, now(), 'test', 'h', topic, "partition" from m`, d.scope, operate.GroupLooks+5000)
	d.exec(`analyze`)
	plans.Reset()
	for _, group := range []func() ([]operate.ErrorGroup, bool, error){
		func() ([]operate.ErrorGroup, bool, error) { return d.inbox.DeadGroups(t.Context(), operate.Filter{}) },
		func() ([]operate.ErrorGroup, bool, error) { return d.inbox.LaneGroups(t.Context(), "") },
	} {
		groups, more, err := group()
		require.NoError(t, err)
		require.True(t, more)
		require.Len(t, groups, 1)
		require.Equal(t, operate.GroupLooks, groups[0].Count)
	}
	require.NotRegexp(t, `(Seq|Heap) Scan on (dead_letters|lanes|parked)`, plans.String())
	_, more, err := d.inbox.DeadGroups(t.Context(), operate.Filter{Reason: "killed"})
	require.NoError(t, err)
	require.True(t, more, "none is among those that were looked at")
}
