package operate_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// numbers are timestamps that producers write, or a broker takes.
var numbers = []int64{-1, 0, 1764300000123, 1764300000000123, 1764300000000000123, -210866803200001, -62135596800000,
	253402300799999,
	253402300800000, math.MinInt64, math.MaxInt64}

// stamped are messages with these timestamps, each with a key of its own.
func stamped(numbers []int64) (ms []dedup.Message) {
	for i, number := range numbers {
		m := message(int64(i), string(rune('a'+i)))
		m.Stamp(number)
		ms = append(ms, m)
	}
	return ms
}

func TestNothingWaitsForATimestampAndTheNumberIsKept(t *testing.T) {
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			w := newWard(t)
			w.pool = deduptest.OpenPool(t, w.dsn+"&default_query_exec_mode="+mode, nil)
			w.restart()
			ms := stamped(numbers)
			w.kill(ms...)
			w.requireTimes(ms, operate.StatusDead)
			require.Equal(t, len(ms), w.redrive(operate.Filter{}))
			w.requireTimes(ms, operate.StatusPending)
			w.handler.mend()
			w.settle()
			w.requireTimes(ms, operate.StatusProcessed)
			require.Equal(t, len(ms), w.rerun(operate.RerunFilter{Filter: operate.Filter{Handler: "book"}}))
			w.requireTimes(ms, operate.StatusPending)
			w.settle()
			w.requireTimes(ms, operate.StatusProcessed)
			require.Equal(t, 2*len(ms), w.count(`select count(*) from effects`))
			require.Zero(t, w.count(`select count(*) from firstseen.inbox where not isfinite(produced_at)`))
		})
	}
}

// requireTimes looks at messages in all ways there are.
func (w *ward) requireTimes(want []dedup.Message, status operate.Status) {
	w.t.Helper()
	for _, content := range []bool{false, true} {
		found, _, err := w.inbox.Messages(w.t.Context(),
			operate.Listing{Status: status, Limit: 1000, Content: content})
		require.NoError(w.t, err)
		require.Len(w.t, found, len(want))
		for i := range found {
			requireTime(w.t, want, found[i].Message)
		}
	}
	for i := range want {
		e, err := w.inbox.ExplainID(w.t.Context(), want[i].ID)
		require.NoError(w.t, err)
		requireTime(w.t, want, e.Seen[0].Stored.Message)
	}
	if status != operate.StatusDead {
		return
	}
	for _, d := range w.dead(operate.Filter{}) {
		requireTime(w.t, want, d.Message)
	}
	_, err := w.inbox.PublishDead(w.t.Context(), time.Minute, func(_ context.Context,
		letters []operate.DeadLetter) ([]operate.Fate, error) {
		require.Len(w.t, letters, len(want))
		for _, d := range letters {
			requireTime(w.t, want, d.Message)
		}
		return nil, nil
	})
	require.NoError(w.t, err)
}

func requireTime(t *testing.T, want []dedup.Message, got dedup.Message) {
	t.Helper()
	for _, m := range want {
		if m.ID == got.ID {
			require.True(t, m.Timestamp.Equal(got.Timestamp), "want %s and got %s", m.Timestamp, got.Timestamp)
			require.Equal(t, m.RawTimestamp, got.RawTimestamp)
			return
		}
	}
	t.Fatalf("message %s was not asked for", got.ID)
}

func TestLanesGiveHandlersTheTimestampThatCame(t *testing.T) {
	w := newWard(t)
	ms := stamped(numbers)
	w.kill(ms...)
	require.Equal(t, len(ms), w.redrive(operate.Filter{}))
	w.handler.mend()
	w.settle()
	require.Len(t, w.handler.given, len(ms))
	for _, m := range w.handler.given {
		requireTime(t, ms, m)
	}
}

// An earlier version stored what a timestamptz can't hold as plus or minus infinity, later years as they are, and -1
// as the last moment of 1969.
func TestTimestampsOfEarlierVersionsStopNothing(t *testing.T) {
	stored := map[string]int64{"infinity": math.MaxInt64, "-infinity": math.MinInt64, "1969-12-31 23:59:59.999+00": -1,
		"57878-03-04 05:06:07.008+00": 1764291474367008, "4713-01-01 00:00:00+00 BC": -210863520000000,
		"294276-01-01 00:00:00.001+00": 9224286393600001}
	w := newWard(t)
	var all []int64
	for _, number := range stored {
		all = append(all, number)
	}
	ms := stamped(all)
	w.kill(ms...)
	age := func(table string) {
		for text, number := range stored {
			for i := range ms {
				if all[i] == number {
					w.exec(`update firstseen.`+table+
						` set raw_timestamp = null, produced_at = $2::text::timestamptz where message_id = $1`,
						ms[i].ID, text)
				}
			}
		}
	}
	age("dead_letters")
	w.requireTimes(ms, operate.StatusDead)
	require.Equal(t, len(ms), w.redrive(operate.Filter{}))
	w.requireTimes(ms, operate.StatusPending)
	w.handler.mend()
	w.settle()
	w.requireTimes(ms, operate.StatusProcessed)
}

func TestConflictsKeepTheTimestampThatCame(t *testing.T) {
	w := newWard(t)
	for i, number := range numbers {
		ms := copies(identity.FingerprintBytes)[:2]
		for j := range ms {
			ms[j].Offset = int64(2*i + j)
			ms[j].Stamp(number)
		}
		require.Equal(t, handlers.Result{New: 1, Conflicts: 1}, w.process(ms...))
		found, _, err := w.inbox.Conflicts(t.Context(), operate.Filter{IDs: []uuid.UUID{ms[0].ID}}, "", 10)
		require.NoError(t, err)
		require.Len(t, found, 1)
		requireTime(t, ms, found[0].Message)
		first, err := w.inbox.Winner(t.Context(), found[0])
		require.NoError(t, err)
		requireTime(t, ms, first.Message)
	}
}
