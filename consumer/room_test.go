package consumer

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
)

func TestPartitionsAreHeldWhereNothingCanBeFetchedForWantOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(1 << 20)
		registry := holds.New(slog.New(slog.DiscardHandler))
		f := &fetching{ctx: t.Context(), cfg: &Config{BufferBytes: 1 << 20}, memory: account, holds: registry,
			partitions: map[topicPartition]*partition{}}
		var all []*partition
		for id := range int32(3) {
			p := newPartition(topicPartition{"orders", 2 * id}, topicMetadata{}, Topic{})
			p.heldIn(registry)
			p.lead(partitionMetadata{leader: 7})
			p.readFrom(0, nil)
			f.partitions[p.topicPartition] = p
			all = append(all, p)
		}
		all[1].add(&fetchedPartition{records: []*fetchedRecord{{}}, costs: costs{{1, 100}}, next: 1})
		all[2].stopReading()
		loop := &fetchLoop{fetching: f, fetchTurf: fetchTurf{7, 0}, wake: newWake(), room: newRoom(account)}

		require.True(t, account.Try(1<<20))
		time.AfterFunc(time.Minute, func() { account.Give(1 << 20) })
		entered := make(chan error)
		go func() { entered <- loop.enter(1 << 10) }()
		time.Sleep(memoryPatience - time.Second)
		synctest.Wait()
		require.Empty(t, registry.List())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, registry.List(), 1, "one has something to do, and one waits for something else")
		require.Equal(t, HeldMemory, all[0].held().Code)
		require.NoError(t, <-entered)
		all[0].answered(false)
		require.Empty(t, registry.List(), "an answer ends it, whatever it brings")
		loop.room.end(true, nil)
		require.Zero(t, account.Used())
	})
}
