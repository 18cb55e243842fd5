package wire

import (
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
)

func TestEpochsAreThoseOfTheBatchesBeforeAPosition(t *testing.T) {
	emptied := wiretest.Under(6, wiretest.PlainBatch(20))
	emptied.LastOffsetDelta = 9
	set := wiretest.RecordSet(wiretest.Under(4, wiretest.PlainBatch(10, "a", "b")), wiretest.Under(4,
		wiretest.PlainBatch(12, "c")), wiretest.Under(5, wiretest.Marker(14, 1, 1)), emptied,
		wiretest.Under(-1, wiretest.PlainBatch(30, "d")), wiretest.Under(7, wiretest.PlainBatch(31, "e")))
	d, err := decodeSet(set, 11)
	require.NoError(t, err)
	es := Epochs{{11, 3}}
	es.Add(d.epochs)
	for position, want := range map[int64]*int32{10: nil, 11: new(int32(3)), 12: new(int32(4)), 13: new(int32(4)),
		15: new(int32(5)),
		30: new(int32(6)), 31: nil, 32: new(int32(7)), 99: new(int32(7))} {
		require.Equal(t, want, es.At(position), "at %d", position)
	}
	again := slices.Clone(es)
	again.Add(d.epochs)
	require.Equal(t, new(int32(7)), again.At(32), "of an answer that came twice")

	es.Cut(15)
	require.Equal(t, new(int32(5)), es.At(99))
	es.Begin(40, nil)
	require.Nil(t, es.At(40))
	es.Begin(40, new(int32(0)))
	require.Equal(t, new(int32(0)), es.At(40))
}

// answering has a fake broker answer every question for the end of a leader epoch so.
func (w *testWire) answering(epoch int32, end int64) {
	consumertest.AnswerEpochs(w.fake, func(int32) (int32, int64) { return epoch, end })
}

func TestPartedByWhatTheLeaderKnowsOfTheEpoch(t *testing.T) {
	for _, c := range []struct {
		name  string
		epoch int32 // the leader's answer: the last epoch up to the one that was read that it has, and its end
		end   int64
		want  *Parting
		named bool
		fails string
	}{
		{"same epoch, which goes on", 1, 4, nil, true, ""},
		{"same epoch, which ends at the position", 1, 2, nil, true, ""},
		{"same epoch, which ends below", 1, 1, &Parting{At: 1, Exact: true}, true, ""},
		{"an older one, which ends below", 0, 1, &Parting{At: 1}, true, ""},
		{"an older one, which holds the last message", 0, 4, &Parting{At: 1}, false, ""},
		{"none, by a leader that is behind", -1, -1, nil, false, "is only at epoch 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeWire(t)
			topic := w.topic(t)
			produce(t, w.client(t, topic), values("a", "b", "c", "d")...)
			_, part := w.at(t, topic, 0)
			w.answering(c.epoch, c.end)
			got, named, err := w.Parted(t.Context(), TopicPartition{topic, 0}, part.TopicID, Reading{2, new(int32(1))})
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.named, named)
		})
	}
}

// A log that was copied after its compaction lacks the epochs of which nothing is left.
func TestLogWithoutTheLastMessageReadIsNoOther(t *testing.T) {
	w := newFakeWire(t)
	topic := w.topic(t)
	produce(t, w.client(t, topic), values("a", "b", "c", "d")...)
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 3, -1)
	_, err := kadm.NewClient(w.client(t, topic)).DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	_, part := w.at(t, topic, 0)
	w.answering(0, 4)
	got, named, err := w.Parted(t.Context(), TopicPartition{topic, 0}, part.TopicID, Reading{3, new(int32(1))})
	require.NoError(t, err)
	require.Nil(t, got)
	require.False(t, named)
}

func TestNothingIsPartedWhereEpochsAreNotKnown(t *testing.T) {
	read := Reading{2, new(int32(0))}
	for name, opts := range map[string][]kfake.Opt{
		"broker older than 2.3": {kfake.MaxVersions(kversion.V2_2_0())},
		"leader keeps none":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeWire(t, opts...)
			topic := w.topic(t)
			produce(t, w.client(t, topic), values("a", "b", "c", "d")...)
			if opts == nil {
				w.answering(-1, -1)
			}
			_, part := w.at(t, topic, 0)
			got, named, err := w.Parted(t.Context(), TopicPartition{topic, 0}, part.TopicID, read)
			require.NoError(t, err)
			require.Nil(t, got)
			require.False(t, named)
		})
	}
	w := newTestWire(t, "127.0.0.1:1", &kafka.Transport{DialTimeout: time.Second})
	for _, unread := range []Reading{{2, nil}, {0, new(int32(3))}} {
		got, named, err := w.Parted(t.Context(), TopicPartition{"orders", 0}, testTopicID, unread)
		require.NoError(t, err, "nobody is asked")
		require.Nil(t, got)
		require.True(t, named)
	}
}

func TestPartedReportsWhatTheLeaderRefuses(t *testing.T) {
	w := newFakeWire(t)
	topic := w.topic(t)
	w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Err: kerr.FencedLeaderEpoch})
	_, _, err := w.Parted(t.Context(), TopicPartition{topic, 0}, testTopicID, Reading{2, new(int32(0))})
	require.ErrorIs(t, err, kerr.FencedLeaderEpoch)
	require.ErrorContains(t, err, topic+"/0")
}

func TestFetchNamesTheLastEpoch(t *testing.T) {
	for _, last := range []*int32{nil, new(int32(0)), new(int32(5))} {
		request := fetchRequest([]FetchPartition{{Topic: "orders", LastEpoch: last}}, eager)
		want := int32(-1)
		if last != nil {
			want = *last
		}
		require.Equal(t, want, request.Topics[0].Partitions[0].LastFetchedEpoch)
	}
}
