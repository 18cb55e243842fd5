package fetch

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
)

// stalled is a partition that its watcher looks at every five seconds, as the fetch loop left it.
type stalled struct {
	*Partition
	log bytes.Buffer
}

func newStalled() *stalled {
	s := &stalled{Partition: NewPartition(wire.TopicPartition{Topic: "orders", Partition: 3},
		wire.Topic{}, Settings{})}
	s.HeldIn(holds.New(slog.New(slog.NewTextHandler(&s.log, nil))))
	return s
}

// fetched moves the partition on: its reader at next, the last stable offset, the end.
func (s *stalled) fetched(next, lastStable, end int64) {
	s.Add(&wire.Fetched{Next: next, LastStable: lastStable, HighWatermark: end})
}

// watched lets time pass and returns how often a stall was logged meanwhile.
func (s *stalled) watched(d time.Duration) int {
	s.log.Reset()
	for range d / (5 * time.Second) {
		time.Sleep(5 * time.Second)
		s.LookForOpenTransaction()
	}
	return strings.Count(s.log.String(), "waiting: a producer's open transaction")
}

func TestOpenTransactionIsReportedAfterAMinute(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(s *stalled)
		at     int64 // the transaction's first offset
	}{
		{"at the first offset of the partition", func(*stalled) {}, 0},
		{"where the reader had been idle", func(s *stalled) { s.fetched(7, 7, 7); s.watched(time.Minute) }, 7},
		{"where the reader was behind", func(s *stalled) { s.fetched(2, 7, 9); s.watched(2 * time.Minute) }, 7},
		{"behind an earlier one", func(s *stalled) { s.fetched(5, 5, 9); s.watched(50 * time.Second) }, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStalled()
				c.before(s)
				s.fetched(c.at, c.at, c.at+5)
				require.Zero(t, s.watched(time.Minute))
				require.Equal(t, 1, s.watched(10*time.Second))
				require.Contains(t, s.log.String(), "partition=orders/3")
				require.Contains(t, s.log.String(), "5 offsets lie behind")
				require.Equal(t, 1, s.watched(6*time.Minute), "now and then")
				require.Contains(t, s.log.String(), "for=6m", "it counts from the beginning")
				s.fetched(c.at+5, c.at+5, c.at+5)
				require.Zero(t, s.watched(5*time.Second))
				require.Contains(t, s.log.String(), "goes on again", "it has ended")
			})
		})
	}
}

func TestLagIsNoOpenTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStalled()
		s.fetched(2, 7, 7)
		require.Zero(t, s.watched(3*time.Minute), "behind, and no transaction")
		s.fetched(3, 7, 9)
		require.Zero(t, s.watched(3*time.Minute), "behind, and not at the transaction yet")
		s.fetched(7, 7, 9)
		require.Zero(t, s.watched(50*time.Second))
		s.fetched(9, 9, 9)
		require.Zero(t, s.watched(3*time.Minute), "the transaction has ended")
	})
}

func TestTransactionsThatFollowEachOtherAreNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStalled()
		for at := range int64(20) {
			s.fetched(at, at, at+5)
			require.Zero(t, s.watched(30*time.Second))
		}
	})
}
