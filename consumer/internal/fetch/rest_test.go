package fetch

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/wait"
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

func offsetsOf(t Taken) (offsets []int64) {
	for _, r := range t.Records {
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

// A fetch that was under way when the partition was paused may be answered while it rests, or after it was resumed,
// further back.
func TestAnswersFromBeforeAPauseLeaveNoGapAfterIt(t *testing.T) {
	p := NewPartition(wire.TopicPartition{Topic: "orders", Partition: 3}, wire.Topic{}, Settings{})
	p.ReadFrom(100, nil)
	require.True(t, p.Add(fetchedRun(100, 105)))
	require.Equal(t, []int64{100, 101}, offsetsOf(p.Take(2, 1<<20)))
	require.True(t, p.Add(fetchedRun(105, 110)))

	p.Rest()
	require.False(t, p.Add(fetchedRun(110, 120)), "while it rests nothing is kept")
	require.Zero(t, p.bytes)
	p.Resume(102)
	require.False(t, p.Add(fetchedRun(110, 120)), "it would leave a gap")
	require.False(t, p.Beyond(102))
	require.True(t, p.Add(fetchedRun(102, 104)))
	require.True(t, p.Add(fetchedRun(100, 106)), "from an earlier place, and on beyond")
	require.Equal(t, []int64{102, 103, 104, 105}, offsetsOf(p.Take(10, 1<<20)))
}

// The two must not come apart: an answer from before the pause, taken in between, would have the worker skip what lies
// before it.
func TestAnswersThatMeetAResumeLeaveNoGap(t *testing.T) {
	p := NewPartition(wire.TopicPartition{Topic: "orders", Partition: 3}, wire.Topic{}, Settings{})
	late := fetchedRun(110, 120)
	for range 1000 {
		p.ReadFrom(110, nil)
		p.Rest()
		var resumed atomic.Bool
		begun := make(chan struct{})
		var answering sync.WaitGroup
		answering.Go(func() {
			p.Add(late)
			close(begun)
			for !resumed.Load() {
				p.Add(late)
			}
		})
		<-begun
		p.Resume(102)
		resumed.Store(true)
		answering.Wait()
		require.Empty(t, p.Take(10, 1<<20).Records, "102 to 109 would be skipped")
	}
}

func TestAHeldPartitionStaysHeldThroughAPause(t *testing.T) {
	p := NewPartition(wire.TopicPartition{Topic: "orders", Partition: 3}, wire.Topic{}, Settings{})
	p.ReadFrom(100, nil)
	p.StopReading()
	p.Rest()
	p.Resume(100)
	require.False(t, p.reading, "only a person's decision has it read again")
}

func TestARestingPartitionGivesItsRoomBackAndRemembersItsLagTime(t *testing.T) {
	p := NewPartition(wire.TopicPartition{Topic: "orders", Partition: 3}, wire.Topic{}, Settings{})
	p.ReadFrom(100, nil)
	p.Add(fetchedRun(100, 110))
	front := p.oldestWaiting()
	require.Equal(t, 10, p.Rest())
	require.Zero(t, p.Rest())
	require.Equal(t, front, p.oldestWaiting())
}

func TestARestingPartitionDoesNotMakeFetchesOfItsSiblingsShort(t *testing.T) {
	f := &Fetcher{Config: Config{BufferBytes: 1 << 20}, Memory: memory.New(1 << 20),
		Partitions: map[wire.TopicPartition]*Partition{}}
	for _, id := range []int32{1, 3} {
		p := NewPartition(wire.TopicPartition{Topic: "orders", Partition: id}, wire.Topic{}, Settings{})
		p.lead(wire.Partition{Leader: 7})
		p.ReadFrom(100, nil)
		f.Partitions[p.TopicPartition] = p
	}
	loop := &loop{Fetcher: f, shard: shard{7, 1}, wake: wait.NewBell()}
	f.Partitions[wire.TopicPartition{Topic: "orders", Partition: 1}].Rest()
	parts, all := loop.wanted(0)
	require.Len(t, parts, 1)
	require.EqualValues(t, 3, parts[0].Partition)
	require.True(t, all, "each fetch would wait for 20 ms only, as long as the pause lasts")
}

// Behind the last record that was taken there may be a gap, or the mark of a transaction, of another epoch.
func TestWhatIsTakenEndsBehindItsLastRecord(t *testing.T) {
	p := NewPartition(wire.TopicPartition{Topic: "orders", Partition: 0}, wire.Topic{}, Settings{})
	p.ReadFrom(10, nil)
	set := wiretest.RecordSet(wiretest.Under(4, wiretest.PlainBatch(10, "a")),
		wiretest.Under(5, wiretest.Marker(11, 1, 1)), wiretest.Under(5, wiretest.PlainBatch(15, "b")))
	part := wire.FetchPartition{Topic: "orders", Offset: 10}
	f := wire.New(nil, nil, "", 0).DecodeRecords(part, set, nil, wire.NewFixedRoom(1<<20), 0)
	require.NoError(t, f.Err)
	require.True(t, p.Add(&f))
	first := p.Take(1, 100)
	require.EqualValues(t, 11, first.Next)
	require.Equal(t, new(int32(4)), p.EpochAt(first.Next))
	require.Empty(t, p.Take(1, 0).Records)
	require.EqualValues(t, 16, p.Take(1, 100).Next)
	require.Equal(t, new(int32(5)), p.EpochAt(16))
	require.Equal(t, new(int32(5)), p.lastEpoch())
	p.NameEpochs(false)
	require.Nil(t, p.lastEpoch())
}
