package consumer_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/shards"
	"github.com/firstseen/firstseen/handlers"
)

// inShard has a consumer work on a shard of two.
func inShard(t testing.TB, name string) (shards.Home, func(*consumer.Config, *handlers.Config)) {
	home := shards.Home{Shard: name}
	for shard, text := range map[string]string{"a": "0", "b": "1-"} {
		partitions, err := shards.ParsePartitions(text)
		require.NoError(t, err)
		home.Map = append(home.Map, shards.Shard{Name: shard, Partitions: partitions})
	}
	return home, func(cfg *consumer.Config, _ *handlers.Config) { cfg.Home = home }
}

// A partition is held in a database that is not its home, names why, and begins once that is put right; a group that
// has a member with a map refuses one without.
func TestAPartitionIsHeldWhereItIsNotAtHome(t *testing.T) {
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 2)
		consumertest.Fill(t, addr, s.topic, 2, 10)
		home, as := inShard(t, "a")
		c := s.consumer(as)
		defer s.start(c)()
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(c.Status().Partitions, func(p consumer.PartitionStatus) bool {
				return p.Held == consumer.HeldNotHome
			})
		}, waitLimit, 50*time.Millisecond)
		require.Len(t, c.Status().Partitions, 1, "the other partition is for others")
		require.Contains(t, c.Status().Holds[0].Reason, "run `firstseen migrate up`")

		without := s.consumer(nil)
		defer s.start(without)()
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(without.Status().Holds, func(h holds.Hold) bool {
				return strings.Contains(strings.ToLower(h.Reason), "inconsistent")
			})
		}, waitLimit, 50*time.Millisecond)
		require.NoError(t, dedup.DeclareHomes(t.Context(), "", s.group, home.Map, map[string]*pgxpool.Pool{"a": s.pool}))
		require.Eventually(t, func() bool { return s.count(`select count(*) from effects`) == 10 }, waitLimit,
			50*time.Millisecond)
		require.Zero(t, s.count(`select count(*) from effects where "partition" <> 0`))
		require.Empty(t, without.Status().Partitions)
	})
}
