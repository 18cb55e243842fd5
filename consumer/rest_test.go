package consumer

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
	"github.com/firstseen/firstseen/dedup/memory"
)

// fetchedRun is an answer that was asked for from an offset on, and brings the records up to next.
func fetchedRun(from, next int64) *wire.Fetched {
	f := &wire.Fetched{From: from, Next: next, LastStable: 300, HighWatermark: 300}
	for offset := from; offset < next; offset++ {
		f.Records = append(f.Records, &wire.Record{Offset: offset, Timestamp: 1e12 + offset})
		f.Costs = append(f.Costs, wire.Cost{Next: offset + 1, Bytes: 1})
	}
	return f
}

func offsetsOf(t taken) (offsets []int64) {
	for _, r := range t.records {
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

// A fetch that was under way when the partition was paused may be answered while it rests, or after it was resumed,
// further back.
func TestAnswersFromBeforeAPauseLeaveNoGapAfterIt(t *testing.T) {
	p := newPartition(wire.TopicPartition{Topic: "orders", Partition: 3}, wire.Topic{}, settings{})
	p.readFrom(100, nil)
	require.True(t, p.add(fetchedRun(100, 105)))
	require.Equal(t, []int64{100, 101}, offsetsOf(p.take(2, 1<<20)))
	require.True(t, p.add(fetchedRun(105, 110)))

	p.rest()
	require.False(t, p.add(fetchedRun(110, 120)), "while it rests nothing is kept")
	require.Zero(t, p.bytes)
	p.resume(102)
	require.False(t, p.add(fetchedRun(110, 120)), "it would leave a gap")
	require.False(t, p.beyond(102))
	require.True(t, p.add(fetchedRun(102, 104)))
	require.True(t, p.add(fetchedRun(100, 106)), "from an earlier place, and on beyond")
	require.Equal(t, []int64{102, 103, 104, 105}, offsetsOf(p.take(10, 1<<20)))
}

// The two must not come apart: an answer from before the pause, taken in between, would have the worker skip what lies
// before it.
func TestAnswersThatMeetAResumeLeaveNoGap(t *testing.T) {
	p := newPartition(wire.TopicPartition{Topic: "orders", Partition: 3}, wire.Topic{}, settings{})
	late := fetchedRun(110, 120)
	for range 1000 {
		p.readFrom(110, nil)
		p.rest()
		var resumed atomic.Bool
		begun := make(chan struct{})
		var answering sync.WaitGroup
		answering.Go(func() {
			p.add(late)
			close(begun)
			for !resumed.Load() {
				p.add(late)
			}
		})
		<-begun
		p.resume(102)
		resumed.Store(true)
		answering.Wait()
		require.Empty(t, p.take(10, 1<<20).records, "102 to 109 would be skipped")
	}
}

func TestAHeldPartitionStaysHeldThroughAPause(t *testing.T) {
	p := newPartition(wire.TopicPartition{Topic: "orders", Partition: 3}, wire.Topic{}, settings{})
	p.readFrom(100, nil)
	p.stopReading()
	p.rest()
	p.resume(100)
	require.False(t, p.reading, "only a person's decision has it read again")
}

func TestARestingPartitionGivesItsRoomBackAndRemembersItsLagTime(t *testing.T) {
	p := newPartition(wire.TopicPartition{Topic: "orders", Partition: 3}, wire.Topic{}, settings{})
	p.readFrom(100, nil)
	p.add(fetchedRun(100, 110))
	front := p.oldestWaiting()
	require.Equal(t, 10, p.rest())
	require.Zero(t, p.rest())
	require.Equal(t, front, p.oldestWaiting())
}

func TestARestingPartitionDoesNotMakeFetchesOfItsSiblingsShort(t *testing.T) {
	f := &fetching{cfg: fetchConfig{bufferBytes: 1 << 20}, memory: memory.New(1 << 20), partitions: map[wire.TopicPartition]*partition{}}
	for _, id := range []int32{1, 3} {
		p := newPartition(wire.TopicPartition{Topic: "orders", Partition: id}, wire.Topic{}, settings{})
		p.lead(wire.Partition{Leader: 7})
		p.readFrom(100, nil)
		f.partitions[p.TopicPartition] = p
	}
	loop := &fetchLoop{fetching: f, shard: shard{7, 1}, wake: wait.NewBell()}
	f.partitions[wire.TopicPartition{Topic: "orders", Partition: 1}].rest()
	parts, all := loop.wanted()
	require.Len(t, parts, 1)
	require.EqualValues(t, 3, parts[0].Partition)
	require.True(t, all, "each fetch would wait for 20 ms only, as long as the pause lasts")
}

// Behind the last record that was taken there may be a gap, or the mark of a transaction, of another epoch.
func TestWhatIsTakenEndsBehindItsLastRecord(t *testing.T) {
	p := newPartition(wire.TopicPartition{Topic: "orders", Partition: 0}, wire.Topic{}, settings{})
	p.readFrom(10, nil)
	set := wiretest.RecordSet(wiretest.Under(4, wiretest.PlainBatch(10, "a")),
		wiretest.Under(5, wiretest.Marker(11, 1, 1)), wiretest.Under(5, wiretest.PlainBatch(15, "b")))
	part := wire.FetchPartition{Topic: "orders", Offset: 10}
	f := wire.New(nil, nil, "", 0).DecodeRecords(part, set, nil, wire.NewFixedRoom(1<<20), 0)
	require.NoError(t, f.Err)
	require.True(t, p.add(&f))
	first := p.take(1, 100)
	require.EqualValues(t, 11, first.next)
	require.Equal(t, new(int32(4)), p.epochAt(first.next))
	require.Empty(t, p.take(1, 0).records)
	require.EqualValues(t, 16, p.take(1, 100).next)
	require.Equal(t, new(int32(5)), p.epochAt(16))
	require.Equal(t, new(int32(5)), p.lastEpoch())
	p.nameEpochs(false)
	require.Nil(t, p.lastEpoch())
}
