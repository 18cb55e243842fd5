package consumer

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/memory"
)

// fetchedRun is an answer that was asked for from an offset on, and brings the records up to next.
func fetchedRun(from, next int64) *fetchedPartition {
	f := &fetchedPartition{from: from, next: next, lastStable: 300, highWatermark: 300}
	for offset := from; offset < next; offset++ {
		f.records = append(f.records, &fetchedRecord{offset: offset, timestamp: 1e12 + offset})
		f.costs = append(f.costs, cost{offset + 1, 1})
	}
	return f
}

func offsetsOf(t taken) (offsets []int64) {
	for _, r := range t.records {
		offsets = append(offsets, r.offset)
	}
	return offsets
}

// A fetch that was under way when the partition was paused may be answered while it rests, or after it was resumed,
// further back.
func TestAnswersFromBeforeAPauseLeaveNoGapAfterIt(t *testing.T) {
	p := newPartition(topicPartition{"orders", 3}, topicMetadata{}, Topic{})
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
	p := newPartition(topicPartition{"orders", 3}, topicMetadata{}, Topic{})
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
	p := newPartition(topicPartition{"orders", 3}, topicMetadata{}, Topic{})
	p.readFrom(100, nil)
	p.stopReading()
	p.rest()
	p.resume(100)
	require.False(t, p.reading, "only a person's decision has it read again")
}

func TestARestingPartitionGivesItsRoomBackAndRemembersItsLagTime(t *testing.T) {
	p := newPartition(topicPartition{"orders", 3}, topicMetadata{}, Topic{})
	p.readFrom(100, nil)
	p.add(fetchedRun(100, 110))
	front := p.oldestWaiting()
	require.Equal(t, 10, p.rest())
	require.Zero(t, p.rest())
	require.Equal(t, front, p.oldestWaiting())
}

func TestARestingPartitionDoesNotMakeFetchesOfItsSiblingsShort(t *testing.T) {
	f := &fetching{cfg: &Config{BufferBytes: 1 << 20}, memory: memory.New(1 << 20), partitions: map[topicPartition]*partition{}}
	for _, id := range []int32{1, 3} {
		p := newPartition(topicPartition{"orders", id}, topicMetadata{}, Topic{})
		p.lead(partitionMetadata{leader: 7})
		p.readFrom(100, nil)
		f.partitions[p.topicPartition] = p
	}
	loop := &fetchLoop{fetching: f, fetchTurf: fetchTurf{7, 1}, wake: newWake()}
	f.partitions[topicPartition{"orders", 1}].rest()
	parts, all := loop.wanted()
	require.Len(t, parts, 1)
	require.EqualValues(t, 3, parts[0].partition)
	require.True(t, all, "each fetch would wait for 20 ms only, as long as the pause lasts")
}
