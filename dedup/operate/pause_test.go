package operate_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

var (
	orders   = dedup.Pause{Kind: dedup.PauseTopic, Topic: "orders"}
	orders3  = dedup.Pause{Kind: dedup.PausePartition, Topic: "orders", Partition: 3}
	handlerH = dedup.Pause{Kind: dedup.PauseHandler, Handler: "h"}
)

func (s *stage) pause(p dedup.Pause, why string) (changed bool) {
	s.t.Helper()
	changed, err := s.inbox.Pause(s.t.Context(), p, operate.By{Actor: "eve", Why: why})
	require.NoError(s.t, err)
	return changed
}

func (s *stage) resume(p dedup.Pause) (changed bool) {
	s.t.Helper()
	changed, err := s.inbox.Resume(s.t.Context(), p, operate.By{Actor: "adam", Why: "mended"})
	require.NoError(s.t, err)
	return changed
}

func TestPauseIsKeptOnceWithTheFirstReason(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, p := range []dedup.Pause{orders3, orders, handlerH} {
		require.True(t, s.pause(p, "broken"))
		require.False(t, s.pause(p, "broken, I say"))
	}
	list, err := s.store.Pauses(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 3)
	for i, want := range []dedup.Pause{handlerH, orders3, orders} {
		require.WithinDuration(t, time.Now(), list[i].At, time.Minute)
		want.At, want.Actor, want.Why = list[i].At, "eve", "broken"
		require.Equal(t, want, list[i])
	}
	require.True(t, s.resume(orders))
	require.False(t, s.resume(orders))
	list, err = s.store.Pauses(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, 3,
		s.count(`select count(*) from firstseen.audit where action = 'pause' and actor = 'eve' and why = 'broken'
		and inbox = 'test' and subject in ('topic orders', 'partition orders/3', 'handler h')`))
	require.Equal(t, 1, s.count(`select count(*) from firstseen.audit where action = 'resume' and actor = 'adam' and subject = 'topic orders'`))
	require.Equal(t, 4, s.count(`select count(*) from firstseen.audit`))
}

func TestPauseIsOfOneInbox(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	other, err := dedup.Open(t.Context(), s.pool, dedup.Config{Inbox: "other"})
	require.NoError(t, err)
	s.pause(orders, "x")
	list, err := operate.Of(other).Pauses(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
	changed, err := operate.Of(other).Resume(t.Context(), orders, operate.By{Actor: "eve", Why: "x"})
	require.NoError(t, err)
	require.False(t, changed)
	require.True(t, s.resume(orders))
}

func TestPauseIsNamedAsItIsPrinted(t *testing.T) {
	for _, want := range []dedup.Pause{orders, orders3, handlerH,
		{Kind: dedup.PausePartition, Topic: "a/b", Partition: 0}} {
		got, err := dedup.PauseOf(want.Kind, want.Name())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, "partition orders/3", orders3.String())
	for kind, name := range map[dedup.PauseKind]string{dedup.PausePartition: "orders", "partition ": "orders/1",
		dedup.PauseTopic: " ", dedup.PauseHandler: "", "": "x"} {
		_, err := dedup.PauseOf(kind, name)
		require.Error(t, err, "%s %s", kind, name)
	}
	for _, name := range []string{"orders/-1", "orders/x", "/1", "3", "orders/99999999999"} {
		_, err := dedup.PauseOf(dedup.PausePartition, name)
		require.Error(t, err, name)
	}
}

func TestPauseAsksForWhoAndWhy(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, by := range []operate.By{{Actor: "eve"}, {Why: "x"}} {
		_, err := s.inbox.Pause(t.Context(), orders, by)
		require.Error(t, err)
		_, err = s.inbox.Resume(t.Context(), orders, by)
		require.Error(t, err)
	}
	_, err := s.inbox.Pause(t.Context(), dedup.Pause{Kind: "day"}, operate.By{Actor: "eve", Why: "x"})
	require.ErrorContains(t, err, `kind "day" is none of`)
}

func TestLanesOfWhatIsPausedAreNotClaimed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	other := s.scopes(dedup.ScopeKey{Handler: "other"})[0]
	b := &dedup.Batch{}
	for _, e := range []struct {
		scope     int32
		topic     string
		partition int32
	}{{s.scope, "orders", 3}, {s.scope, "orders", 4}, {s.scope, "returns", 3}, {other, "orders", 3}} {
		m := &dedup.Message{ID: uuid.New(), Topic: e.topic, Partition: e.partition}
		b.Entries = append(b.Entries, dedup.Entry{Scope: e.scope, Message: m, Lane: m.ID, State: dedup.Parked})
	}
	tx, err := s.store.Accept(t.Context(), b)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	place := func(lane uuid.UUID) int {
		return slices.IndexFunc(b.Entries, func(e dedup.Entry) bool { return e.Lane == lane })
	}
	claimed := func() (places []int) {
		for _, handler := range []string{"h", "other"} {
			claims, err := s.store.ClaimLanes(t.Context(), handler, 10, 0)
			require.NoError(t, err)
			for _, c := range claims {
				places = append(places, place(c.Lane))
			}
		}
		slices.Sort(places)
		return places
	}
	require.Equal(t, []int{0, 1, 2, 3}, claimed())
	for _, c := range []struct {
		paused []dedup.Pause
		want   []int
	}{
		{[]dedup.Pause{orders}, []int{2}},
		{[]dedup.Pause{orders3}, []int{1, 2}},
		{[]dedup.Pause{handlerH}, []int{3}},
		{[]dedup.Pause{orders3, handlerH}, nil},
		{[]dedup.Pause{{Kind: dedup.PauseTopic, Topic: "h"}, {Kind: dedup.PauseHandler, Handler: "orders"}},
			[]int{0, 1, 2, 3}},
	} {
		for _, p := range c.paused {
			s.pause(p, "x")
		}
		require.Equal(t, c.want, claimed(), "%v", c.paused)
		for _, p := range c.paused {
			s.resume(p)
		}
	}
	require.Equal(t, []int{0, 1, 2, 3}, claimed())
}

func TestPausableAreTheNamesThatWereSeen(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.position(3)
	for kind, want := range map[dedup.PauseKind][]string{
		dedup.PauseHandler: {"h"}, dedup.PauseTopic: {"orders"}, dedup.PausePartition: {"orders/3"}} {
		names, err := s.inbox.Pausable(t.Context(), kind)
		require.NoError(t, err)
		require.Equal(t, want, names, kind)
	}
}
