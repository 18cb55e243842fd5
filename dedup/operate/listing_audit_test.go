package operate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestAuditListsWhatWasDoneByHandTheLastFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := message(0, "k")
	s.settled(operate.StatusDead, s.scope, m)
	_, err := s.inbox.Discard(t.Context(), operate.Filter{IDs: []uuid.UUID{m.ID}},
		operate.By{Actor: "ann", Why: "a test order"})
	require.NoError(t, err)
	for n := range 4 {
		_, err = s.inbox.Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: fmt.Sprint("t", n)},
			operate.By{Actor: "ben", Why: "migration"})
		require.NoError(t, err)
	}
	other, err := dedup.Open(t.Context(), s.pool, dedup.Config{Inbox: "other"})
	require.NoError(t, err)
	_, err = operate.Of(other).Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: "t"},
		operate.By{Actor: "ben", Why: "migration"})
	require.NoError(t, err)

	var got []operate.AuditRecord
	var after operate.Cursor
	for page := 0; page == 0 || after != ""; page++ {
		records, next, err := s.inbox.Audit(t.Context(), operate.AuditFilter{}, after, 2)
		require.NoError(t, err)
		got, after = append(got, records...), next
	}
	require.Len(t, got, 5)
	for n, subject := range []string{"topic t3", "topic t2", "topic t1", "topic t0"} {
		require.Equal(t, []string{"ben", "pause", "migration", subject},
			[]string{got[n].Actor, got[n].Action, got[n].Why, got[n].Subject})
	}
	last := got[4]
	require.Equal(t, []any{"ann", "discard", "a test order", "h", m.ID, ""},
		[]any{last.Actor, last.Action, last.Why, last.Handler, last.MessageID, last.Subject})
	for _, test := range []struct {
		filter operate.AuditFilter
		want   int
	}{
		{operate.AuditFilter{Actor: "ann"}, 1}, {operate.AuditFilter{Action: "pause"},
			4}, {operate.AuditFilter{From: time.Now().Add(time.Hour)}, 0},
		{operate.AuditFilter{To: time.Now().Add(-time.Hour)},
			0}, {operate.AuditFilter{From: last.At, To: last.At.Add(time.Microsecond)}, 1},
	} {
		records, _, err := s.inbox.Audit(t.Context(), test.filter, "", 10)
		require.NoError(t, err)
		require.Len(t, records, test.want, "%+v", test.filter)
	}
	_, _, err = s.inbox.Audit(t.Context(), operate.AuditFilter{}, "d1.2", 10)
	require.ErrorContains(t, err, "cursor")
}
