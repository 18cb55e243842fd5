package dedup_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
)

// In these tests locks are held on purpose: whoever takes them in another order than all others shows at once, and
// not in one of many rounds.

// hold runs a statement in a transaction of its own, which is open until the test ends or release is called.
func (s *stage) hold(sql string, args ...any) (release func()) {
	s.t.Helper()
	tx, err := s.admin.Begin(context.Background())
	require.NoError(s.t, err)
	release = func() { _ = tx.Rollback(context.Background()) }
	s.t.Cleanup(release)
	_, err = tx.Exec(context.Background(), `set local lock_timeout = '30s'`)
	require.NoError(s.t, err)
	_, err = tx.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err)
	return release
}

// free requires that a statement has to wait for nobody. It takes nothing back.
func (s *stage) free(sql string, args ...any) {
	s.t.Helper()
	tx, err := s.admin.Begin(context.Background())
	require.NoError(s.t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(context.Background(), `set local lock_timeout = '1ms'`)
	require.NoError(s.t, err)
	_, err = tx.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err, sql)
}

// parkTwo leaves two lanes with a message each, and gives them in their order.
func (s *stage) parkTwo() (lanes []uuid.UUID) {
	s.t.Helper()
	b := s.batch(s.position(0), newIDs(2)...)
	tx, err := s.store.Accept(context.Background(), b)
	require.NoError(s.t, err)
	defer tx.Rollback(context.Background())
	for i := range b.Entries {
		e := &b.Entries[i]
		e.Lane = e.Message.ID
		e.Park(0)
		lanes = append(lanes, e.Lane)
	}
	require.NoError(s.t, tx.Commit(context.Background()))
	slices.SortFunc(lanes, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return lanes
}

const (
	lockLane   = `select from firstseen.lanes where lane = $1 for update`
	lockLaneOf = `select from firstseen.lanes where lane = $1 for no key update`
)

func TestLanesAreLoadedInTheirOrder(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	lanes := s.parkTwo()
	claims, err := s.store.ClaimLanes(t.Context(), "h", 10, time.Minute)
	require.NoError(t, err)
	// the last first
	slices.SortFunc(claims, func(a, b dedup.Claim) int { return bytes.Compare(b.Lane[:], a.Lane[:]) })
	release := s.hold(lockLane, lanes[0])
	var loading errgroup.Group
	loading.Go(func() error {
		tx, _, err := s.store.LoadLanes(context.Background(), claims, 1, 0)
		if err == nil {
			tx.Rollback(context.Background())
		}
		return err
	})
	awaitLockWait(t, s.admin)
	s.free(lockLane, lanes[1])
	release()
	require.NoError(t, loading.Wait())
}

func TestLoadedLanesAreNobodyElses(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	lanes := s.parkTwo()
	claims, err := s.store.ClaimLanes(t.Context(), "h", 10, 0)
	require.NoError(t, err)
	tx, batch, err := s.store.LoadLanes(t.Context(), claims, 1, 0)
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	require.Len(t, batch.Entries, 2)
	again, err := s.store.ClaimLanes(t.Context(), "h", 10, 0)
	require.NoError(t, err)
	require.Empty(t, again, "their lease is over, and their lock is not")
	for _, lane := range lanes {
		require.Zero(t, s.count(`select count(*) from (`+lockLaneOf+` skip locked) l`, lane))
		s.free(`select from firstseen.lanes where lane = $1 for key share`, lane) // a batch may join it
	}
}

func TestClaimThatWasLostLoadsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.parkTwo()
	lost, err := s.store.ClaimLanes(t.Context(), "h", 1, 0)
	require.NoError(t, err)
	_, err = s.store.ClaimLanes(t.Context(), "h", 10, time.Minute)
	require.NoError(t, err)
	tx, batch, err := s.store.LoadLanes(t.Context(), lost, 1, 0)
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	require.Empty(t, batch.Entries)
}

func TestLanesAreJoinedInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, join := range map[string]string{
		"new messages":       `select firstseen.join_lanes($1, array[$2, $2]::int[], array[$4, $3]::uuid[])`,
		"messages read anew": `select firstseen.join_older_lanes($1, array[$2, $2]::int[], array[$4, $3]::uuid[], array[100, 100]::bigint[])`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			lanes := s.parkTwo()
			position := s.count(`select position_id from firstseen.positions`)
			release := s.hold(lockLane, lanes[0])
			var joining errgroup.Group
			joining.Go(func() error {
				return pgx.BeginFunc(context.Background(), s.admin, func(tx pgx.Tx) error {
					_, err := tx.Exec(context.Background(), join, position, s.scope, lanes[0], lanes[1])
					return err
				})
			})
			awaitLockWait(t, s.admin)
			s.free(lockLane, lanes[1])
			release()
			require.NoError(t, joining.Wait())

			s.hold(lockLaneOf, lanes[0])
			s.hold(join, position, s.scope, lanes[0], lanes[1]) // is not waited for: a worker may be at it for long
			require.Zero(t, s.count(`select count(*) from (`+lockLane+` skip locked) l`, lanes[1]),
				"it can't be removed")
		})
	}
}

func TestScopesAreMadeInTheirOrder(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const making = `insert into firstseen.scopes (inbox, handler, tenant) values ('test', $1, '')`
	release := s.hold(making, "a")
	var resolving errgroup.Group
	resolving.Go(func() error {
		_, err := s.store.Scopes(context.Background(), []dedup.ScopeKey{{Handler: "b"}, {Handler: "a"}})
		return err
	})
	awaitLockWait(t, s.admin)
	s.free(making, "b")
	release()
	require.NoError(t, resolving.Wait())
	require.Equal(t, 2, s.count(`select count(*) from firstseen.scopes where handler in ('a', 'b')`))
}

func TestScopeThatTwoMakeAtOnceIsOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	other, err := s.admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	var made int32
	require.NoError(t, other.QueryRow(t.Context(),
		`insert into firstseen.scopes (inbox, handler, tenant) values ('test', 'a', '') returning scope_id`).
		Scan(&made))
	var found []int32
	var resolving errgroup.Group
	resolving.Go(func() (err error) {
		scopes, err := s.store.Scopes(context.Background(), []dedup.ScopeKey{{Handler: "a"}})
		found = scopes.IDs
		return err
	})
	awaitLockWait(t, s.admin)
	require.NoError(t, other.Commit(t.Context()))
	require.NoError(t, resolving.Wait())
	require.Equal(t, []int32{made}, found)
}

// asTheyLie has rows come in the order that they were written in, where nothing sorts them.
const asTheyLie = `set local enable_indexscan = off; set local enable_bitmapscan = off`

const beginSQL = `select firstseen.begin_topic('consumer', 'orders', null, array[1, 0], array[$1, $1]::bigint[])`

func TestTopicThatTwoBeginAtOnceIsTheFirstOnes(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]string{
		"new positions": `select`,
		"positions without an offset": `insert into firstseen.positions (consumer, topic, "partition")
			values ('consumer', 'orders', 0), ('consumer', 'orders', 1)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.exec(there)
			first, err := s.admin.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = first.Rollback(context.Background()) }()
			_, err = first.Exec(t.Context(), beginSQL, 5)
			require.NoError(t, err)
			var begun bool
			var second errgroup.Group
			second.Go(func() (err error) {
				begun, err = s.store.Begin(context.Background(), "consumer", "orders", uuid.Nil,
					map[int32]int64{0: 7, 1: 7}, nil)
				return err
			})
			awaitLockWait(t, s.admin)
			require.NoError(t, first.Commit(t.Context()))
			require.NoError(t, second.Wait())
			require.False(t, begun)
			require.Equal(t, 10, s.count(`select sum(next_offset) from firstseen.positions`))
		})
	}
}

func TestPositionsOfATopicAreBegunInTheirOrder(t *testing.T) {
	t.Parallel()
	const (
		insert = `insert into firstseen.positions (consumer, topic, "partition") values ('consumer', 'orders', $1)`
		lock   = `select from firstseen.positions where "partition" = $1 for update`
	)
	for name, c := range map[string]struct {
		there []int // the last first
		taken string
	}{"new ones": {nil, insert}, "those that are there": {[]int{1, 0}, lock}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			for _, partition := range c.there {
				s.exec(insert, partition)
			}
			release := s.hold(c.taken, 0)
			var beginning errgroup.Group
			beginning.Go(func() error {
				return pgx.BeginFunc(context.Background(), s.admin, func(tx pgx.Tx) error {
					if _, err := tx.Exec(context.Background(), asTheyLie); err != nil {
						return err
					}
					_, err := tx.Exec(context.Background(), beginSQL, 5)
					return err
				})
			})
			awaitLockWait(t, s.admin)
			s.free(c.taken, 1)
			release()
			require.NoError(t, beginning.Wait())
			require.Equal(t, 10, s.count(`select sum(next_offset) from firstseen.positions`))
		})
	}
}

// The shortest way by which a batch of nothing but duplicates is answered asks for one scope.
func TestDuplicatesOfOneTenantHideNothingOfAnother(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	scopes := s.scopes(dedup.ScopeKey{Handler: "h"}, dedup.ScopeKey{Handler: "h", Tenant: "x"})
	p, ids := s.position(0), newIDs(2)
	require.Equal(t, repeat(isNew, 2), s.accept(s.batch(p, ids...)))
	require.Equal(t, repeat(duplicate, 2), s.accept(s.batch(p, ids...))) // from here on duplicates are expected
	b := s.batch(p, ids...)
	b.Entries[1].Scope = scopes[1]
	require.Equal(t, []dedup.Outcome{duplicate, isNew}, s.accept(b))
}

func TestLanesOfAnotherInboxAreNotClaimed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.parkTwo()
	other, err := dedup.Open(t.Context(), s.pool, dedup.Config{Inbox: "other"})
	require.NoError(t, err)
	_, err = other.Scopes(t.Context(), []dedup.ScopeKey{{Handler: "h"}})
	require.NoError(t, err)
	claims, err := other.ClaimLanes(t.Context(), "h", 10, time.Minute)
	require.NoError(t, err)
	require.Empty(t, claims)
	claims, err = s.store.ClaimLanes(t.Context(), "h", 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, claims, 2)
}
