package deadtopic

import (
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestErrorIsCutBetweenLetters(t *testing.T) {
	l := &operate.DeadLetter{Error: strings.Repeat("é", 1000)}
	for n := range 9 {
		for _, h := range diagnostics(l, n) {
			if h.Key == headerError {
				require.Equal(t, strings.Repeat("é", n/2), string(h.Value))
			}
		}
	}
}

func TestCutsEndWithTheIDAlone(t *testing.T) {
	l := &operate.DeadLetter{Error: strings.Repeat("x", 64<<10)}
	all := cuts(l)
	require.Len(t, all[0], 10)
	require.Len(t, all[len(all)-2], 9, "no error")
	require.Equal(t, headerID, all[len(all)-1][0].Key)
	require.Len(t, all[len(all)-1], 1)
	require.Less(t, len(all), 10)
	require.Len(t, cuts(&operate.DeadLetter{Error: "short"}), 3)
}

func TestDiagnosticsOfAnEarlierPublishingAreReplaced(t *testing.T) {
	l := &operate.DeadLetter{Error: "new"}
	l.Message.Headers = []dedup.Header{{Key: "a"}, {Key: headerError, Value: []byte("old")},
		{Key: "a", Value: []byte{}}, {Key: "firstseen-other"}, {Key: headerID}, {Key: headerID}}
	for range 5 {
		r := record(l, diagnostics(l, 10))
		require.Len(t, r.Headers, 3+len(diagnosticNames))
		require.Equal(t,
			[]kafka.Header{{Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "firstseen-other"}}, r.Headers[:3])
		l.Message.Headers = nil
		for _, h := range r.Headers {
			l.Message.Headers = append(l.Message.Headers, dedup.Header{Key: h.Key, Value: h.Value})
		}
	}
}

func TestALetterThatCameFromNoPartitionHasAPlace(t *testing.T) {
	d := Publisher{partitions: []int{0, 1, 2}}
	require.Contains(t, d.partitions, d.partition(&dedup.Message{Partition: -1}))
	require.Equal(t, 1, d.partition(&dedup.Message{Partition: 4}))
}
