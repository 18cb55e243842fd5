package dedup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// oneConnection is a stage whose store has a single connection: one that is not given back shows at once.
func oneConnection(t *testing.T) *stage {
	db := deduptest.New(t)
	return stageOn(t, db, deduptest.OpenPool(t, db.DSN, func(c *pgxpool.Config) { c.MaxConns = 1 }), dedup.Config{})
}

// ends are ways in which a handler could end the transaction that it was given.
var ends = []string{"commit", "rollback", "commit; begin", "rollback; begin", "commit and chain", "rollback and chain",
	"end", "abort", "set constraints all immediate"}

func TestNoHandlersStatementCommitsAnythingOfABatch(t *testing.T) {
	s := oneConnection(t)
	s.exec(`create table effects (n int)`)
	p := s.position(0)
	for _, sql := range ends {
		for name, position := range map[string]*dedup.Position{"": p, " without a position": nil} {
			t.Run(sql+name, func(t *testing.T) {
				tx, err := s.store.Accept(t.Context(), s.batch(position, newIDs(2)...))
				require.NoError(t, err)
				_, err = tx.Handler().Exec(t.Context(), `insert into effects values (1)`)
				require.NoError(t, err)
				_, _ = tx.Handler().Conn().PgConn().Exec(t.Context(), sql).ReadAll()
				err = tx.Check()
				if err == nil {
					err = tx.Commit(t.Context())
				}
				tx.Rollback(t.Context())
				require.True(t, errorIsOneOf(err, dedup.ErrEnded, dedup.ErrAborted), "%v", err)
				s.requireRows(0)
				require.Zero(t, s.count(`select count(*) from effects`))
				require.Zero(t, p.Next)
			})
		}
	}
}

func errorIsOneOf(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func TestCommitAfterASwallowedErrorIsRefused(t *testing.T) {
	s := oneConnection(t)
	for _, ids := range [][]uuid.UUID{newIDs(1), nil} {
		tx, err := s.store.Accept(t.Context(), s.batch(s.position(0), ids...))
		require.NoError(t, err)
		_, err = tx.Handler().Exec(t.Context(), `select 1/0`)
		require.Error(t, err)
		require.ErrorIs(t, tx.Check(), dedup.ErrAborted)
		require.ErrorIs(t, tx.Commit(t.Context()), dedup.ErrAborted, "also without the check")
		s.requireRows(0)
	}
}

func TestHandlersTransactionIsOverWithTheBatch(t *testing.T) {
	s := oneConnection(t)
	tx, err := s.store.Accept(t.Context(), s.batch(s.position(0), uuid.New()))
	require.NoError(t, err)
	handler := tx.Handler()
	require.ErrorIs(t, handler.Commit(t.Context()), dedup.ErrNotYours)
	require.ErrorIs(t, handler.Rollback(t.Context()), dedup.ErrNotYours)
	savepoint, err := handler.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))

	for _, over := range []pgx.Tx{handler, savepoint} {
		_, err = over.Exec(t.Context(), `select 1`)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		_, err = over.Query(t.Context(), `select 1`)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		require.ErrorIs(t, over.QueryRow(t.Context(), `select 1`).Scan(new(int)), pgx.ErrTxClosed)
		b := &pgx.Batch{}
		b.Queue(`select 1`)
		require.ErrorIs(t, over.SendBatch(t.Context(), b).Close(), pgx.ErrTxClosed)
		_, err = over.CopyFrom(t.Context(), pgx.Identifier{"x"}, nil, pgx.CopyFromRows(nil))
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		_, err = over.Prepare(t.Context(), "x", `select 1`)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		_, err = over.Begin(t.Context())
		require.ErrorIs(t, err, pgx.ErrTxClosed)
	}
	require.ErrorIs(t, savepoint.Commit(t.Context()), pgx.ErrTxClosed)
}

func TestStatementLeftRunningCutsTheConnection(t *testing.T) {
	s := oneConnection(t)
	tx, err := s.store.Accept(t.Context(), s.batch(s.position(0), uuid.New()))
	require.NoError(t, err)
	left := make(chan error)
	go func() {
		_, err := tx.Handler().Exec(context.Background(), `select pg_sleep(600)`)
		left <- err
	}()
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_stat_activity where query like '%pg_sleep%' and pid <> pg_backend_pid()
			and datname = current_database()`) == 1
	}, 3*time.Minute, 5*time.Millisecond)
	require.ErrorIs(t, tx.Check(), dedup.ErrBusy)
	require.ErrorIs(t, tx.Commit(t.Context()), dedup.ErrBusy)
	require.Error(t, <-left)
	s.requireRows(0)
	require.Equal(t, repeat(isNew, 1), s.accept(s.batch(s.position(0), uuid.New())), "the pool goes on")
	require.Zero(t, s.count(`select count(*) from pg_stat_activity where query like '%pg_sleep%' and pid <> pg_backend_pid()
			and datname = current_database()`),
		"the server was told")
}

func TestRowsLeftOpenAreRefused(t *testing.T) {
	s := oneConnection(t)
	tx, err := s.store.Accept(t.Context(), s.batch(s.position(0), uuid.New()))
	require.NoError(t, err)
	_, err = tx.Handler().Query(t.Context(), `select generate_series(1, 10)`)
	require.NoError(t, err)
	require.ErrorIs(t, tx.Check(), dedup.ErrBusy)
	tx.Rollback(t.Context())
	require.Equal(t, repeat(isNew, 1), s.accept(s.batch(s.position(0), uuid.New())))
}
