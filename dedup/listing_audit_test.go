package dedup_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestAuditListsWhatWasDoneByHandTheLastFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := message(0, "k")
	s.settled(dedup.StatusDead, s.scope, m)
	_, err := s.store.Discard(t.Context(), dedup.Filter{IDs: []uuid.UUID{m.ID}}, dedup.By{Actor: "ann", Why: "a test order"})
	require.NoError(t, err)
	for n := range 4 {
		_, err = s.store.Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: fmt.Sprint("t", n)}, dedup.By{Actor: "ben", Why: "migration"})
		require.NoError(t, err)
	}
	other, err := dedup.Open(t.Context(), s.pool, dedup.Config{Inbox: "other"})
	require.NoError(t, err)
	_, err = other.Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: "t"}, dedup.By{Actor: "ben", Why: "migration"})
	require.NoError(t, err)

	var got []dedup.AuditRecord
	var after dedup.Cursor
	for page := 0; page == 0 || after != ""; page++ {
		records, next, err := s.store.Audit(t.Context(), dedup.AuditFilter{}, after, 2)
		require.NoError(t, err)
		got, after = append(got, records...), next
	}
	require.Len(t, got, 5)
	for n, subject := range []string{"topic t3", "topic t2", "topic t1", "topic t0"} {
		require.Equal(t, []string{"ben", "pause", "migration", subject}, []string{got[n].Actor, got[n].Action, got[n].Why, got[n].Subject})
	}
	last := got[4]
	require.Equal(t, []any{"ann", "discard", "a test order", "h", m.ID, ""}, []any{last.Actor, last.Action, last.Why, last.Handler, last.MessageID, last.Subject})
	for _, test := range []struct {
		filter dedup.AuditFilter
		want   int
	}{
		{dedup.AuditFilter{Actor: "ann"}, 1}, {dedup.AuditFilter{Action: "pause"}, 4}, {dedup.AuditFilter{From: time.Now().Add(time.Hour)}, 0},
		{dedup.AuditFilter{To: time.Now().Add(-time.Hour)}, 0}, {dedup.AuditFilter{From: last.At, To: last.At.Add(time.Microsecond)}, 1},
	} {
		records, _, err := s.store.Audit(t.Context(), test.filter, "", 10)
		require.NoError(t, err)
		require.Len(t, records, test.want, "%+v", test.filter)
	}
	_, _, err = s.store.Audit(t.Context(), dedup.AuditFilter{}, "d1.2", 10)
	require.ErrorContains(t, err, "cursor")
}
