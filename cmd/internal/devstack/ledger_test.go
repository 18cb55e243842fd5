package devstack

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestLedgerKnowsWhatIsExpectedBelowEachOffset(t *testing.T) {
	l := newLedger()
	l.confirm(0, 0, tally{1, 10})
	l.confirm(0, 1, tally{}) // a copy
	l.confirm(1, 0, tally{1, -3})
	l.confirm(0, 2, tally{1, 5})

	for _, c := range []struct {
		reached map[int32]int64
		want    tally
		known   bool
	}{
		{nil, tally{}, true},
		{map[int32]int64{0: 1}, tally{1, 10}, true},
		{map[int32]int64{0: 2, 1: 1}, tally{2, 7}, true},
		{map[int32]int64{0: 4, 1: 1}, tally{}, false}, // the broker's answer for offset 3 is still to come
		{map[int32]int64{0: 3, 1: 1}, tally{3, 12}, true},
		{map[int32]int64{2: 1}, tally{}, false},
	} {
		got, known := l.at(c.reached)
		require.Equal(t, c.want, got, "%v", c.reached)
		require.Equal(t, c.known, known, "%v", c.reached)
	}
	produced, total := l.totals()
	require.Equal(t, int64(4), produced)
	require.Equal(t, tally{3, 12}, total)
	require.NoError(t, l.failure())
}

func TestLedgerForgetsWhatLiesBelow(t *testing.T) {
	l := newLedger()
	for offset := range int64(100) {
		l.confirm(0, offset, tally{1, 1})
	}
	_, known := l.at(map[int32]int64{0: 90})
	require.True(t, known)
	require.Len(t, l.partitions[0].sums, 11)
	l.confirm(0, 100, tally{1, 1})
	sum, known := l.at(map[int32]int64{0: 101})
	require.True(t, known)
	require.Equal(t, tally{101, 101}, sum)
}

func TestLedgerFailsWhereAMessageIsNotItsOwnOrLost(t *testing.T) {
	l := newLedger()
	l.confirm(0, 1, tally{1, 1})
	require.ErrorContains(t, l.failure(), "somebody else writes to the topic")

	l = newLedger()
	l.lost(errors.New("timeout"))
	require.ErrorContains(t, l.failure(), "timeout")
}

func TestCopiesAreTwinsAndResendsInTheirShare(t *testing.T) {
	p := &producer{duplicates: 0.4}
	seen := map[string]bool{}
	var unique, twins, resends int
	var balance int64
	var before *kgo.Record
	const messages = 60_000 // more than are remembered
	for range messages {
		r, amount, err := p.next()
		require.NoError(t, err)
		id := string(r.Headers[0].Value)
		switch {
		case amount.Unique == 1:
			var m movement
			require.NoError(t, json.Unmarshal(r.Value, &m))
			require.False(t, seen[id])
			require.Equal(t, id, m.ID.String())
			require.Equal(t, amount.Balance, m.Amount)
			balance += m.Amount
			unique++
		case string(before.Headers[0].Value) == id:
			require.Equal(t, before.Value, r.Value)
			twins++
		default:
			require.True(t, seen[id])
			require.Zero(t, amount)
			resends++
		}
		seen[id] = true
		before = r
	}
	require.InDelta(t, 0.6*messages, unique, 0.02*messages)
	require.Greater(t, twins, messages/10)
	require.Greater(t, resends, messages/10)
	require.Len(t, p.recent, remembered)
	require.NotZero(t, balance)
}
