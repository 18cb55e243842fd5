package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// failing registers a handler that leaves an effect and then misbehaves, and gives the error of its batch, of which
// nothing may be left.
func failing(t *testing.T, misbehave func(ctx context.Context, tx pgx.Tx) error) error {
	t.Helper()
	s := newStage(t)
	s.register("h", handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if err := leaveEffect(ctx, tx, m); err != nil {
			return err
		}
		return misbehave(ctx, tx)
	})))
	p := s.position("orders")
	_, err := s.process(p, messages(p, newIDs(2)...)...)
	require.Error(t, err)
	s.requireNothing(p)
	return err
}

func TestErrorNamesHandlerAndMessage(t *testing.T) {
	cause := errors.New("no stock")
	err := failing(t, func(context.Context, pgx.Tx) error { return cause })
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "handler h: message orders/0@0: no stock")
	var handler *handlers.HandlerError
	require.ErrorAs(t, err, &handler)
	require.Equal(t, "h", handler.Handler)
	var message *handlers.MessageError
	require.ErrorAs(t, err, &message)
	require.EqualValues(t, 0, message.Offset)
}

func TestPanicIsAnError(t *testing.T) {
	err := failing(t, func(context.Context, pgx.Tx) error { panic("boom") })
	var p *handlers.PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "boom", p.Value)
	require.Contains(t, string(p.Stack), "call_test.go")
	require.EqualError(t, err, "handler h: panic: boom")
	require.ErrorAs(t, failing(t, func(context.Context, pgx.Tx) error { panic(nil) }), &p)
	require.ErrorAs(t, failing(t, func(context.Context, pgx.Tx) error { var none []int; return fmt.Errorf("no %d", none[len(none)]) }), &p)
}

func TestGoexitIsAnError(t *testing.T) {
	for name, exit := range map[string]func(){"goexit": runtime.Goexit, "FailNow": func() { new(testing.T).FailNow() }} {
		t.Run(name, func(t *testing.T) {
			err := failing(t, func(context.Context, pgx.Tx) error { exit(); return nil })
			require.ErrorIs(t, err, handlers.ErrGoexit)
		})
	}
}

func TestSwallowedSQLErrorIsAnError(t *testing.T) {
	err := failing(t, func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, `select 1/0`)
		return nil
	})
	require.ErrorContains(t, err, "handler h")
}

func TestSwallowedSQLErrorOfTheLastStatementIsErrAborted(t *testing.T) {
	s := newStage(t)
	s.register("h", handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		_, _ = tx.Exec(ctx, `select 1/0`)
		return nil
	}))
	p := s.position("orders")
	_, err := s.process(p, messages(p, newIDs(2)...)...)
	require.ErrorIs(t, err, dedup.ErrAborted)
	require.ErrorContains(t, err, "handler h")
	s.requireNothing(p)
}

func TestSwallowedSQLErrorBehindASavepointIsTheHandlersAffair(t *testing.T) {
	s := newStage(t)
	s.register("h", handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
			if err := leaveEffect(ctx, sp, m); err != nil {
				return err
			}
			_, err := sp.Exec(ctx, `select 1/0`)
			return err
		})
		var pg *pgconn.PgError
		if !errors.As(err, &pg) {
			return fmt.Errorf("no division by zero: %w", err)
		}
		return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return leaveEffect(ctx, sp, m) })
	})))
	p := s.position("orders")
	s.requireResult(handlers.Result{New: 2}, p, messages(p, newIDs(2)...)...)
	require.Equal(t, 2, s.effects("h"), "what is behind the second savepoint")
}

func TestHandlerCanNotEndItsTransaction(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"Rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		require.ErrorIs(t, failing(t, end), dedup.ErrNotYours, name)
	}
	for _, sql := range []string{"commit", "rollback", "rollback; begin", "commit and chain", "rollback and chain", "abort; begin; select 1"} {
		t.Run(sql, func(t *testing.T) {
			err := failing(t, func(ctx context.Context, tx pgx.Tx) error {
				_, _ = tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
				return nil
			})
			require.Error(t, err)
			err = failing(t, func(ctx context.Context, tx pgx.Tx) error {
				_, _ = tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
				return nil
			})
			require.Error(t, err)
		})
	}
}

func TestBatchWhoseLastStatementEndedTheTransactionIsErrEnded(t *testing.T) {
	for _, sql := range []string{"rollback", "rollback; begin", "rollback and chain"} {
		s := newStage(t)
		s.register("h", handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
			_, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
			return err
		}))
		p := s.position("orders")
		_, err := s.process(p, messages(p, newIDs(2)...)...)
		require.ErrorIs(t, err, dedup.ErrEnded, sql)
		s.requireNothing(p)
	}
}

func TestHungHandlerIsCutOff(t *testing.T) {
	s := newStage(t)
	release, ended := make(chan struct{}), make(chan error)
	s.cfg.HandlerTimeout = 50 * time.Millisecond
	s.register("hung", handlers.BatchHandlerFunc(func(_ context.Context, tx pgx.Tx, ms []dedup.Message) error {
		<-release
		_, err := tx.Exec(context.Background(), `insert into effects (handler) values ('late')`)
		ended <- err
		return err
	}))
	p := s.position("orders")
	ms := messages(p, newIDs(2)...)
	for range 3 { // more often than the pool has connections
		_, err := s.process(p, ms...)
		require.ErrorIs(t, err, handlers.ErrAbandoned)
		require.ErrorIs(t, err, handlers.ErrHandlerTimeout)
		s.requireNothing(p)
	}
	close(release)
	for range 3 {
		require.Error(t, <-ended, "its transaction is gone")
	}
	s.requireNothing(p)
}

func TestHandlerHungInAStatementIsCutOff(t *testing.T) {
	s := newStage(t)
	s.cfg.HandlerTimeout = 50 * time.Millisecond
	ended := make(chan error, 1)
	s.register("hung", handlers.BatchHandlerFunc(func(_ context.Context, tx pgx.Tx, ms []dedup.Message) error {
		_, err := tx.Exec(context.Background(), `select pg_sleep(600)`)
		ended <- err
		return nil
	}))
	p := s.position("orders")
	_, err := s.process(p, messages(p, newIDs(2)...)...)
	require.ErrorIs(t, err, handlers.ErrAbandoned)
	require.Error(t, <-ended)
	s.requireNothing(p)
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_locks where locktype = 'advisory'`) == 0
	}, 10*time.Second, 5*time.Millisecond, "the server's side ends too")
}

func TestHandlerThatObeysItsTimeLimitIsNotCutOff(t *testing.T) {
	s := newStage(t)
	s.cfg.HandlerTimeout = 50 * time.Millisecond
	s.cfg.AbandonAfter = time.Minute
	s.register("slow", handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	p := s.position("orders")
	_, err := s.process(p, messages(p, newIDs(2)...)...)
	require.ErrorIs(t, err, handlers.ErrHandlerTimeout)
	require.NotErrorIs(t, err, handlers.ErrAbandoned)
	s.requireNothing(p)
}

func TestGoroutineLeftBehindReachesNoLaterBatch(t *testing.T) {
	s := newStage(t)
	transactions := make(chan pgx.Tx, 2)
	s.register("h", handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		savepoint, err := tx.Begin(ctx)
		transactions <- tx
		transactions <- savepoint
		return errors.Join(err, leaveEffect(ctx, tx, m))
	})))
	p := s.position("orders")
	s.requireResult(handlers.Result{New: 1}, p, messages(p, newIDs(1)...)...)

	next, err := s.store.Accept(t.Context(), &dedup.Batch{}) // has the pool's one connection
	require.NoError(t, err)
	for range 2 {
		_, err := (<-transactions).Exec(t.Context(), `insert into effects (handler) values ('late')`)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
	}
	require.NoError(t, next.Commit(t.Context()))
	require.Zero(t, s.effects("late"))
}

func TestStatementLeftRunningFailsTheBatch(t *testing.T) {
	s := newStage(t)
	ended := make(chan error, 1)
	s.register("h", handlers.BatchHandlerFunc(func(_ context.Context, tx pgx.Tx, ms []dedup.Message) error {
		go func() {
			_, err := tx.Exec(context.Background(), `select pg_sleep(600)`)
			ended <- err
		}()
		for s.count(`select count(*) from pg_stat_activity where query = 'select pg_sleep(600)' and state = 'active'`) == 0 {
			time.Sleep(time.Millisecond)
		}
		return nil
	}))
	p := s.position("orders")
	_, err := s.process(p, messages(p, newIDs(1)...)...)
	require.ErrorIs(t, err, dedup.ErrBusy)
	require.ErrorContains(t, err, "handler h")
	require.Error(t, <-ended)
	s.requireNothing(p)
}
