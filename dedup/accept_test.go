package dedup_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

const (
	isNew     = dedup.New
	duplicate = dedup.Duplicate
)

func TestFirstCopyInABatchIsTheNewOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a, b := uuid.New(), uuid.New()
	p := s.position(0)
	require.Equal(t, []dedup.Outcome{isNew, duplicate, isNew, duplicate, duplicate},
		s.accept(s.batch(p, b, b, a, b, a)))
	s.requireRows(2)
	require.Equal(t, 0, s.count(`select "offset" from firstseen.inbox where message_id = $1`, b))
	require.Equal(t, 2, s.count(`select "offset" from firstseen.inbox where message_id = $1`, a))
	require.EqualValues(t, 5, p.Next)
}

func TestIDOfAnEarlierBatchIsADuplicate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p, ids := s.position(0), newIDs(3)
	require.Equal(t, repeat(isNew, 3), s.accept(s.batch(p, ids...)))
	require.Equal(t, repeat(duplicate, 3), s.accept(s.batch(p, ids...)), "all of them")
	require.Equal(t, []dedup.Outcome{isNew, duplicate, isNew}, s.accept(s.batch(p, uuid.New(), ids[1], uuid.New())))
	s.requireRows(5)
}

func TestADeadLetterIsFoundAmongDuplicatesToo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p, ids := s.position(0), newIDs(3)
	s.accept(s.batch(p, ids...))
	require.Equal(t, repeat(duplicate, 3), s.accept(s.batch(p, ids...)))
	s.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, reason) select scope_id, message_id, 'orders', 'failed'
		from firstseen.message_dedup where message_id = $1`, ids[1])
	for range 2 { // also where nothing but duplicates is expected
		require.Equal(t, []dedup.Outcome{duplicate, dedup.Buried, duplicate}, s.accept(s.batch(p, ids...)))
	}
}

func TestEmptyBatchMovesThePositionOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.position(0)
	s.accept(&dedup.Batch{Position: p, Next: 17})
	require.EqualValues(t, 17, p.Next)
	require.EqualValues(t, 17, s.position(0).Next)
	s.accept(&dedup.Batch{})
	s.requireRows(0)
}

func TestBatchWithoutAPositionIsAccepted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ids := newIDs(2)
	require.Equal(t, repeat(isNew, 2), s.accept(s.batch(nil, ids...)))
	require.Equal(t, repeat(duplicate, 2), s.accept(s.batch(nil, ids...)))
	s.requireRows(2)
}

func TestAnIDIsUniqueWithinItsScopeOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	scopes := s.scopes(dedup.ScopeKey{Handler: "a"}, dedup.ScopeKey{Handler: "b"},
		dedup.ScopeKey{Handler: "a", Tenant: "x"})
	m := &dedup.Message{ID: uuid.New(), Topic: "orders"}
	b := &dedup.Batch{}
	for _, scope := range append(scopes, scopes...) {
		b.Entries = append(b.Entries, dedup.Entry{Scope: scope, Message: m})
	}
	require.Equal(t, append(repeat(isNew, 3), repeat(duplicate, 3)...), s.accept(b))
	s.requireRows(3)
}

func TestRollbackForgetsTheBatch(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p, ids := s.position(0), newIDs(3)
	for range 2 {
		tx, err := s.store.Accept(t.Context(), s.batch(p, ids...))
		require.NoError(t, err)
		tx.Rollback(t.Context())
		tx.Rollback(t.Context())
		require.Error(t, tx.Commit(t.Context()), "it is over")
	}
	s.requireRows(0)
	require.Zero(t, p.Next)
	require.Equal(t, repeat(isNew, 3), s.accept(s.batch(p, ids...)))
}

// withoutDuplicates brings a position to where accept tries a plain insert.
func (s *stage) withoutDuplicates(p *dedup.Position) {
	for range 10 {
		s.accept(s.batch(p, newIDs(1)...))
	}
}

func TestPlainInsertFallsBackAtADuplicate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.position(0)
	s.withoutDuplicates(p)
	ids := newIDs(3)
	require.Equal(t, repeat(isNew, 3), s.accept(s.batch(p, ids...)), "the plain insert's way")
	next := p.Next
	require.Equal(t, []dedup.Outcome{isNew, duplicate, isNew}, s.accept(s.batch(p, uuid.New(), ids[1], uuid.New())))
	require.Equal(t, next+3, p.Next)
	require.Equal(t, repeat(duplicate, 3), s.accept(s.batch(p, ids...)))
	s.requireRows(15)
}

func TestUniqueViolationOfAnotherTableIsNoDuplicate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`create table other (id int primary key);
		create function only_once() returns trigger language plpgsql as
			$$ begin insert into public.other values (1); return null; end $$;`)
	p := s.position(0)
	s.withoutDuplicates(p)
	s.exec(`insert into other values (1);
		create trigger t after insert on firstseen.message_dedup for each row execute function only_once()`)
	_, err := s.store.Accept(t.Context(), s.batch(p, uuid.New()))
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, "other_pkey", pg.ConstraintName)
	s.requireRows(10)
}

func TestFencedOwnerTakesNothingIn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	old := s.position(0)
	fresh := s.position(0)
	_, err := s.store.Accept(t.Context(), s.batch(old, uuid.New()))
	require.ErrorIs(t, err, dedup.ErrFenced)
	require.ErrorContains(t, err, "accept orders/0@0-1")
	require.ErrorIs(t, s.store.Reposition(t.Context(), old, 5, uuid.Nil, nil), dedup.ErrFenced)
	s.requireRows(0)
	require.Equal(t, repeat(isNew, 1), s.accept(s.batch(fresh, uuid.New())))
}

func TestPositionThatMovedIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.position(0)
	behind := *p
	s.accept(s.batch(p, newIDs(4)...))
	for _, from := range []int64{0, 9} {
		behind.Next = from
		_, err := s.store.Accept(t.Context(), s.batch(&behind, uuid.New()))
		var moved *dedup.MovedError
		require.ErrorAs(t, err, &moved)
		require.EqualValues(t, 4, moved.Next)
	}
	s.requireRows(4)
}

func TestPositionWithoutAnOffsetIsNotCalledFenced(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p, err := s.store.Acquire(t.Context(), "consumer", "orders", 0, "owner")
	require.NoError(t, err)
	require.False(t, p.Known)
	_, err = s.store.Accept(t.Context(), s.batch(p, uuid.New()))
	require.ErrorContains(t, err, "no offset yet")
	require.NotErrorIs(t, err, dedup.ErrFenced)
}

func TestDefaultsOfTheDatabaseChangeNothing(t *testing.T) {
	for setting, value := range map[string]string{
		"default_transaction_isolation": "repeatable read",
		"search_path":                   "pg_catalog",
		"timezone":                      "Pacific/Kiritimati",
		"plan_cache_mode":               "force_custom_plan",
		"bytea_output":                  "escape",
	} {
		t.Run(setting, func(t *testing.T) { acceptWhileAnotherDoes(t, setting, value) })
	}
	t.Run("serializable", func(t *testing.T) {
		acceptWhileAnotherDoes(t, "default_transaction_isolation", "serializable")
	})
}

// acceptWhileAnotherDoes has two batches with a common ID overlap, which fails in a higher isolation than READ
// COMMITTED.
func acceptWhileAnotherDoes(t *testing.T, setting, value string) {
	db := deduptest.New(t)
	setDefault(t, db, setting, value)
	s := stageOn(t, db, deduptest.OpenPool(t, db.DSN, nil), dedup.Config{EvictAfter: 5 * time.Second})
	id := uuid.New()
	first, other := s.position(0), s.position(1)
	tx, err := s.store.Accept(t.Context(), s.batch(first, id))
	require.NoError(t, err)

	b := s.batch(other, id, uuid.New())
	second := make(chan error, 2)
	go func() {
		tx, err := s.store.Accept(context.Background(), b)
		if err == nil {
			err = tx.Commit(context.Background())
		}
		second <- err
		_, err = s.store.Acquire(context.Background(), "consumer", "orders", 0, "next")
		second <- err
	}()
	awaitLockWait(t, db.Pool)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-second)
	require.NoError(t, <-second)
	require.Equal(t, []dedup.Outcome{duplicate, isNew}, outcomes(b))
}

// awaitLockWait waits until a session of the database waits for a lock.
func awaitLockWait(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(context.Background(), `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n)
		return err == nil && n > 0
	}, 3*time.Minute, 5*time.Millisecond)
}

func TestStatementTimeoutLeavesNothing(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	setDefault(t, db, "statement_timeout", "300ms")
	s := stageOn(t, db, deduptest.OpenPool(t, db.DSN, nil), dedup.Config{})
	id := uuid.New()
	tx, err := s.store.Accept(t.Context(), s.batch(s.position(0), id))
	require.NoError(t, err)
	p := s.position(1)
	_, err = s.store.Accept(t.Context(), s.batch(p, id))
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, "57014", pg.Code)
	tx.Rollback(t.Context())
	require.Equal(t, repeat(isNew, 1), s.accept(s.batch(p, id)))
	s.requireRows(1)
}
