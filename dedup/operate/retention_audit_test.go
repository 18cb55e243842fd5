package operate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/operate"
)

// Each run has a time of its own; the chunks of one share it.
func TestEachRunOfRetentionLeavesOneNoteHoweverOftenItsReasonIsTheSame(t *testing.T) {
	w := newWard(t)
	notes := func() int {
		return w.count(`select count(*) from firstseen.audit where actor = $1 and why = $2`, by.Actor, by.Why)
	}
	require.Zero(t, w.forget(days2, "book"), "nothing is done, and nothing noted")
	require.Zero(t, notes())
	before := time.Now().Add(-days2)
	for run := range 2 {
		before = before.Add(time.Second)
		for chunk := range 2 {
			w.process(message(int64(2*run+chunk), "k"))
			w.age("3 days")
			n, err := w.inbox.ForgetIDs(t.Context(), map[string]time.Time{"book": before}, by)
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			require.Equal(t, run+1, notes())
		}
	}
	require.Equal(t, 2, w.count(`select count(distinct subject) from firstseen.audit where action = 'forget'`))
}

func TestRowsWithoutADayLeaveOneNoteARun(t *testing.T) {
	w := newWard(t)
	w.process(message(0, "k"))
	spread := `insert into firstseen.inbox (received_at, scope_id, message_id, topic, seq)
		select now() - interval '9 days', scope_id, gen_random_uuid(), 'orders', -n from firstseen.scopes, generate_series(1, 1200) n`
	for run := range 2 {
		w.exec(spread)
		dropped, err := w.inbox.DropInbox(t.Context(), time.Now().Add(-days2), by)
		require.NoError(t, err)
		require.Equal(t, operate.Dropped{Rows: 1200}, dropped, "in three chunks")
		require.Equal(t, run+1,
			w.count(`select count(*) from firstseen.audit where action = 'drop' and actor = $1 and why = $2
			and inbox = 'orders-inbox' and subject ~ '^inbox rows without a day, received before \d{4}-\d\d-\d\d '`,
				by.Actor, by.Why))
	}
}
