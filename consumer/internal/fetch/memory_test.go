package fetch

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/wait"
)

func TestPartitionsAreHeldWhereNothingCanBeFetchedForWantOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(1 << 20)
		registry := holds.New(slog.New(slog.DiscardHandler))
		f := &Fetcher{Ctx: t.Context(), Config: Config{BufferBytes: 1 << 20}, Memory: account, Holds: registry,
			Partitions: map[wire.TopicPartition]*Partition{}}
		var all []*Partition
		for id := range int32(3) {
			p := NewPartition(wire.TopicPartition{Topic: "orders", Partition: 2 * id}, wire.Topic{}, Settings{})
			p.HeldIn(registry)
			p.lead(wire.Partition{Leader: 7})
			p.ReadFrom(0, nil)
			f.Partitions[p.TopicPartition] = p
			all = append(all, p)
		}
		all[1].Add(&wire.Fetched{Records: []*wire.Record{{}}, Costs: wire.Costs{{Next: 1, Bytes: 100}}, Next: 1})
		all[2].StopReading()
		loop := &loop{Fetcher: f, shard: shard{7, 0}, wake: wait.NewBell(), room: wire.NewRoom(account)}

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
		require.Equal(t, holds.Memory, all[0].Held().Code)
		require.NoError(t, <-entered)
		all[0].answered(false)
		require.Empty(t, registry.List(), "an answer ends it, whatever it brings")
		loop.room.End(true, nil)
		require.Zero(t, account.Used())
	})
}

// What a fetch would take of the memory counts before it is taken: or a loop takes it, finds that nothing may be read
// ahead any more, gives it back, and so on, for as long as the buffers are nearly full.
func TestLoopThatMayNotReadAheadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(1 << 20)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		f := &Fetcher{Ctx: ctx, Config: Config{BufferBytes: 1 << 20, Bytes: 1 << 20}, Memory: account,
			Holds: holds.New(slog.New(slog.DiscardHandler)), Partitions: map[wire.TopicPartition]*Partition{}}
		p := NewPartition(wire.TopicPartition{Topic: "orders"}, wire.Topic{}, Settings{})
		p.lead(wire.Partition{Leader: 7})
		p.ReadFrom(0, nil)
		p.Add(&wire.Fetched{Records: []*wire.Record{{}}, Costs: wire.Costs{{Next: 1, Bytes: 100}}, Next: 1})
		f.Partitions[p.TopicPartition] = p
		require.True(t, account.Try(700<<10))
		given := 0
		defer account.Watch(func() {
			if given++; given == 100 {
				cancel()
			}
		})()
		loop := &loop{Fetcher: f, shard: shard{7, 0}, wake: wait.NewBell(), room: wire.NewRoom(account)}
		loop.run()
		require.Less(t, given, 100)
	})
}
