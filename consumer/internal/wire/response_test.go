package wire

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
)

// encodeResponse is a Fetch response with one partition, orders/3.
func encodeResponse(version int16, edit func(r *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition)) []byte {
	r := kmsg.NewFetchResponse()
	r.SetVersion(version)
	topic := kmsg.NewFetchResponseTopic()
	topic.Topic, topic.TopicID = "orders", testTopicID
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = 3, 30, 20, 10
	edit(&r, &p)
	topic.Partitions = append(topic.Partitions, p)
	r.Topics = append(r.Topics, topic)
	return r.AppendTo(nil)
}

var testTopicID = uuid.UUID{1, 2, 3}

func TestReadFetchResponseOfEveryVersion(t *testing.T) {
	for version := int16(fetchOldest); version <= fetchByID; version++ {
		body := encodeResponse(version, func(r *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			p.ErrorCode = kerr.NotLeaderForPartition.Code
			p.CurrentLeader.LeaderID = 7 // a tagged field, of no use here
			p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 5,
				FirstOffset: 6}}
			p.RecordBatches = []byte("records")
		})
		got, err := readFetchResponse(body, version)
		require.NoError(t, err)
		require.Len(t, got.partitions, 1)
		p := got.partitions[0]
		if version >= fetchByID {
			require.Equal(t, testTopicID, p.topicID)
		} else {
			require.Equal(t, "orders", p.topic)
		}
		require.EqualValues(t, 3, p.partition)
		require.Equal(t, kerr.NotLeaderForPartition.Code, p.errorCode)
		require.EqualValues(t, 30, p.highWatermark)
		require.EqualValues(t, 20, p.lastStable)
		if version >= 5 {
			require.EqualValues(t, 10, p.logStart)
		}
		require.Equal(t, []abortedTransaction{{5, 6}}, p.aborted)
		require.Equal(t, "records", string(p.records))
		require.Nil(t, p.diverged)

		for cut := range body {
			_, err := readFetchResponse(body[:cut], version)
			require.Error(t, err, "version %d cut at %d", version, cut)
		}
	}
}

func TestReadFetchResponseTellsWhereTheLogsPart(t *testing.T) {
	for _, version := range []int16{fetchByName, fetchByID} {
		body := encodeResponse(version, func(_ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			p.CurrentLeader.LeaderID = 7
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 4, 12
			p.RecordBatches = []byte{}
		})
		answer, err := readFetchResponse(body, version)
		require.NoError(t, err)
		require.Equal(t, &DivergedError{epoch: 4, end: 12}, answer.partitions[0].diverged)
		for cut := range body {
			_, err := readFetchResponse(body[:cut], version)
			require.Error(t, err, "version %d cut at %d", version, cut)
		}
		got := New(nil, nil, "", 0).decode([]FetchPartition{{Topic: "orders", TopicID: testTopicID, Partition: 3,
			Offset: 20}}, answer, &Room{free: 1 << 20}, 0)
		var diverged *DivergedError
		require.ErrorAs(t, got[0].Err, &diverged)
		require.EqualValues(t, 20, got[0].Next)
	}
}

func TestReadFetchResponseReportsTheResponsesOwnError(t *testing.T) {
	_, err := readFetchResponse(encodeResponse(fetchByID, func(r *kmsg.FetchResponse,
		_ *kmsg.FetchResponseTopicPartition) {
		r.ErrorCode = kerr.UnknownTopicID.Code
	}), fetchByID)
	require.ErrorIs(t, err, kerr.UnknownTopicID)
}

func TestReadFetchResponseRefusesForgedLengths(t *testing.T) {
	plain := make([]byte, 10, 1<<20) // throttle, error, session
	flexible := append(plain[:10:10], kbin.AppendUvarint(nil, 1<<30)...)
	for version, body := range map[int16][]byte{
		11: kbin.AppendInt32(plain, 1<<19)[:1<<20], // an element takes more than a byte
		13: append(flexible, make([]byte, 1<<20)...),
	} {
		var err error
		grown := wiretest.Allocated(func() { _, err = readFetchResponse(body, version) })
		require.ErrorIs(t, err, kerr.CorruptMessage)
		require.Less(t, grown, 1<<20)
	}
}

func TestDecodeNoticesAPartitionThatTheBrokerLeftOut(t *testing.T) {
	w := New(nil, nil, "", 0)
	parts := []FetchPartition{{Topic: "orders", Partition: 3, Offset: 5}}
	got := w.decode(parts, fetchResponse{version: fetchByName}, &Room{}, 0)
	require.ErrorIs(t, got[0].Err, ErrLeftOut)
	require.ErrorContains(t, got[0].Err, "orders/3@5")

	got = w.decode(parts, fetchResponse{version: fetchByName, throttled: true}, &Room{}, 0)
	require.NoError(t, got[0].Err, "a throttled client gets nothing at all")
	require.EqualValues(t, 5, got[0].Next)
	require.EqualValues(t, -1, got[0].LastStable)
}
