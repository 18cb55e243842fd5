package dedup_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/migrations"
)

func TestPositionIsKeptWithItsTopicsIdentity(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topicID := uuid.New()
	p, err := s.store.Acquire(t.Context(), "consumer", "orders", 3, "me")
	require.NoError(t, err)
	require.False(t, p.Known)
	require.EqualValues(t, 1, p.Epoch)
	require.NoError(t, s.store.Reposition(t.Context(), p, 40, topicID, nil))
	require.NoError(t, s.store.Reposition(t.Context(), p, 7, topicID, nil), "back")
	p, err = s.store.Acquire(t.Context(), "consumer", "orders", 3, "me")
	require.NoError(t, err)
	require.True(t, p.Known)
	require.EqualValues(t, 7, p.Next)
	require.EqualValues(t, 2, p.Epoch)
	require.Equal(t, topicID, p.TopicID)
	require.NoError(t, s.store.Reposition(t.Context(), p, 8, uuid.Nil, nil))
	require.Equal(t, uuid.Nil, s.position(3).TopicID)
}

func TestLeaderEpochTravelsWithThePosition(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			db := deduptest.New(t)
			pool := deduptest.OpenPool(t, db.DSN, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			leaderEpochTravels(t, stageOn(t, db, pool, dedup.Config{}))
		})
	}
}

func leaderEpochTravels(t *testing.T, s *stage) {
	acquire := func(partition int32) *dedup.Position {
		t.Helper()
		p, err := s.store.Acquire(t.Context(), "consumer", "orders", partition, "me")
		require.NoError(t, err)
		return p
	}
	move := func(p *dedup.Position, next int64, epoch *int32) {
		t.Helper()
		tx, err := s.store.Accept(t.Context(), &dedup.Batch{Position: p, Next: next, LeaderEpoch: epoch})
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, epoch, p.LeaderEpoch)
		require.Equal(t, epoch, acquire(3).LeaderEpoch)
	}
	p := acquire(3)
	require.Nil(t, p.LeaderEpoch)
	require.NoError(t, s.store.Reposition(t.Context(), p, 40, uuid.Nil, new(int32(7))))
	require.Equal(t, new(int32(7)), p.LeaderEpoch)
	move(acquire(3), 50, new(int32(8)))
	move(acquire(3), 60, nil)
	move(acquire(3), 70, new(int32(0)))

	stated, err := operate.Of(s.store).Positions(t.Context(), "consumer")
	require.NoError(t, err)
	require.Equal(t, new(int32(0)), stated[0].LeaderEpoch)

	begun, err := s.store.Begin(t.Context(), "other", "orders", uuid.Nil, map[int32]int64{0: 5, 1: 6},
		map[int32]int32{1: 9})
	require.NoError(t, err)
	require.True(t, begun)
	stated, err = operate.Of(s.store).Positions(t.Context(), "other")
	require.NoError(t, err)
	require.Nil(t, stated[0].LeaderEpoch)
	require.Equal(t, new(int32(9)), stated[1].LeaderEpoch)
}

// An epoch beside an offset that it does not belong to would have a partition held for nothing.
func TestLeaderEpochIsUnknownWhereThePositionIsMovedWithoutIt(t *testing.T) {
	t.Parallel()
	by := operate.By{Actor: "me", Why: "test"}
	for name, move := range map[string]func(s *stage, p *dedup.Position) error{
		"accept, by the build before": func(s *stage, p *dedup.Position) error {
			_, err := s.admin.Exec(t.Context(), `do $$ begin
				perform firstseen.accept((select position_id from firstseen.positions), 1, 40, 45, null, '{}', '{}', null);
				perform firstseen.seal(); end $$`)
			return err
		},
		"reposition, by the build before": func(s *stage, p *dedup.Position) error {
			_, err := s.admin.Exec(t.Context(),
				`select firstseen.reposition(position_id, 1, 45, null) from firstseen.positions`)
			return err
		},
		"reset": func(s *stage, p *dedup.Position) error {
			return operate.Of(s.store).ResetPositions(t.Context(), "consumer", "orders", uuid.Nil,
				map[int32]int64{3: 45}, by)
		},
		"reset to where it stood": func(s *stage, p *dedup.Position) error {
			return operate.Of(s.store).ResetPositions(t.Context(), "consumer", "orders", uuid.Nil,
				map[int32]int64{3: 40}, by)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			p, err := s.store.Acquire(t.Context(), "consumer", "orders", 3, "me")
			require.NoError(t, err)
			require.NoError(t, s.store.Reposition(t.Context(), p, 40, uuid.Nil, new(int32(7))))
			require.NoError(t, move(s, p))
			p, err = s.store.Acquire(t.Context(), "consumer", "orders", 3, "me")
			require.NoError(t, err)
			require.True(t, p.Known)
			require.Nil(t, p.LeaderEpoch)
			stated, err := operate.Of(s.store).Positions(t.Context(), "consumer")
			require.NoError(t, err)
			require.Nil(t, stated[0].LeaderEpoch)
		})
	}
}

func TestTopicIsKnownOnceAPositionIsSet(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	known := func(consumer, topic string) bool {
		known, err := s.store.KnowsTopic(t.Context(), consumer, topic)
		require.NoError(t, err)
		return known
	}
	p, err := s.store.Acquire(t.Context(), "consumer", "orders", 1, "me")
	require.NoError(t, err)
	require.False(t, known("consumer", "orders"), "acquired, but never set")
	require.NoError(t, s.store.Reposition(t.Context(), p, 0, uuid.Nil, nil))
	require.True(t, known("consumer", "orders"))
	require.False(t, known("other", "orders"))
	require.False(t, known("consumer", "other"))
}

func TestConcurrentAcquiresEachGetAnEpoch(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const owners = 16
	var mu sync.Mutex
	epochs := map[int64]bool{}
	var group errgroup.Group
	for range owners {
		group.Go(func() error {
			p, err := s.store.Acquire(context.Background(), "consumer", "orders", 0, "me")
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			epochs[p.Epoch] = true
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Len(t, epochs, owners)
}

func TestAcquireEndsAPreviousOwnersHungTransaction(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	_, err := migrations.Up(t.Context(), db.DSN, migrations.Config{Schema: "other"})
	require.NoError(t, err)
	s := stageOn(t, db, deduptest.OpenPool(t, db.DSN, nil), dedup.Config{EvictAfter: 200 * time.Millisecond})
	neighbour := stageOn(t, db, deduptest.OpenPool(t, db.DSN, nil), dedup.Config{Schema: "other"})
	hungPool := deduptest.OpenPool(t, db.DSN, nil)
	hung := stageOn(t, db, hungPool, dedup.Config{})

	stopped, err := hung.store.Accept(t.Context(), hung.batch(hung.position(0), uuid.New()))
	require.NoError(t, err)
	elsewhere, err := neighbour.store.Accept(t.Context(), neighbour.batch(neighbour.position(0), uuid.New()))
	require.NoError(t, err)
	otherPartition, err := hung.store.Accept(t.Context(), hung.batch(hung.position(1), uuid.New()))
	require.NoError(t, err)

	begin := time.Now()
	p := s.position(0)
	require.Equal(t, 1, p.Evicted)
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond, "it was given its time")
	require.Less(t, time.Since(begin), time.Minute)
	require.Zero(t, p.Next)
	require.Error(t, stopped.Commit(t.Context()))
	require.Equal(t, repeat(isNew, 1), s.accept(s.batch(p, uuid.New())))

	require.NoError(t, elsewhere.Commit(t.Context()), "a position of the same number in another schema")
	require.NoError(t, otherPartition.Commit(t.Context()))
	s.requireRows(2)
}

func TestAcquireWaitsForATransactionThatEndsInTime(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	s := stageOn(t, db, deduptest.OpenPool(t, db.DSN, nil), dedup.Config{EvictAfter: time.Minute})
	tx, err := s.store.Accept(t.Context(), s.batch(s.position(0), uuid.New()))
	require.NoError(t, err)
	acquired := make(chan *dedup.Position)
	go func() {
		p, _ := s.store.Acquire(context.Background(), "consumer", "orders", 0, "next")
		acquired <- p
	}()
	awaitLockWait(t, db.Pool)
	require.NoError(t, tx.Commit(t.Context()))
	p := <-acquired
	require.NotNil(t, p)
	require.Zero(t, p.Evicted)
	require.EqualValues(t, 1, p.Next, "what it committed counts")
}

func TestWhoAcquiresAgainLivesAndIsNotCounted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	acquire := func(owner string, fruitless int) *dedup.Position {
		p, err := s.store.Acquire(t.Context(), "consumer", "orders", 0, owner)
		require.NoError(t, err)
		require.Equal(t, fruitless, p.Fruitless, "acquired by %s", owner)
		return p
	}
	acquire("a", 1)
	acquire("a", 1)
	acquire("b", 2)
	p := acquire("b", 2)
	for range 2 { // which is once
		require.NoError(t, s.store.Excuse(t.Context(), p))
	}
	acquire("b", 2) // the one that died is not forgotten
	acquire("b", 2)
	acquire("a", 3)
}

// What a connection that falls silent has inserted, but not committed, others would wait for as long as the server's
// kernel takes to give it up.
func TestConnectionThatFallsSilentInATransactionLocksNothingForLong(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	proxy := deduptest.NewProxy(t, db.DSN)
	s := stageOn(t, db, deduptest.OpenPool(t, proxy.DSN, nil), dedup.Config{AnswerTimeout: 2 * time.Second})
	for name, do := range map[string]func() error{
		"a position": func() error {
			_, err := s.store.Acquire(t.Context(), "consumer", "orders", 0, "me")
			return err
		},
		"a scope": func() error {
			_, err := s.store.Scopes(t.Context(), []dedup.ScopeKey{{Handler: "h", Tenant: "new"}})
			return err
		},
	} {
		proxy.SwallowAnswer("SELECT 1")
		require.ErrorContains(t, do(), "not answered in time", name)
		require.Eventually(t, func() bool { return do() == nil }, 3*time.Minute, 10*time.Millisecond, name)
	}
	proxy.Close() // or closing the pool would wait for answers
}

func TestALostCommitOfALongTransactionIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	proxy := deduptest.NewProxy(t, db.DSN)
	s := stageOn(t, db, deduptest.OpenPool(t, proxy.DSN, nil), dedup.Config{AnswerTimeout: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	proxy.SwallowAnswer("COMMIT")
	_, err := s.store.MakePartitions(ctx)
	require.ErrorIs(t, err, dedup.ErrNoAnswer)
	require.NoError(t, ctx.Err())
	proxy.Close() // or closing the pool would wait for answers
}

func TestMembersThatBeginATopicTogetherBeginItOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.store.Acquire(t.Context(), "consumer", "orders", 1, "a member that died before it set the position")
	require.NoError(t, err)
	var mu sync.Mutex
	begun := 0
	var group errgroup.Group
	for member := range int64(8) {
		group.Go(func() error {
			next := map[int32]int64{0: member, 1: member, 2: member}
			did, err := s.store.Begin(t.Context(), "consumer", "orders", uuid.Nil, next, nil)
			mu.Lock()
			defer mu.Unlock()
			if did {
				begun++
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, 1, begun)
	var positions, offsets int
	require.NoError(t, s.pool.QueryRow(t.Context(), `select count(next_offset), count(distinct next_offset)
		from firstseen.positions where consumer = 'consumer' and topic = 'orders'`).Scan(&positions, &offsets))
	require.Equal(t, 3, positions)
	require.Equal(t, 1, offsets, "all from one member")
}
