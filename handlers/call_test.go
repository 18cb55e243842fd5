package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// failing has a handler leave an effect and then misbehave on the message at offset 1, which must cost that message an
// attempt and nothing else. It gives the failure's text.
func failing(t *testing.T, misbehave func(ctx context.Context, tx pgx.Tx) error) string {
	t.Helper()
	return newStage(t).requireIsolated(handlers.Each(handlers.HandlerFunc(func(ctx context.Context,
		tx pgx.Tx, m dedup.Message) error {
		if err := leaveEffect(ctx, tx, m); err != nil || m.Offset != 1 {
			return err
		}
		return misbehave(ctx, tx)
	})))
}

// failingBatch is failing for a handler that gets its messages together and names none.
func failingBatch(misbehave func(ctx context.Context, tx pgx.Tx) error) handlers.BatchHandler {
	return handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		if err := effect("h").HandleBatch(ctx, tx, ms); err != nil {
			return err
		}
		if slices.ContainsFunc(ms, func(m dedup.Message) bool { return m.Offset == 1 }) {
			return misbehave(ctx, tx)
		}
		return nil
	})
}

func TestFailureNamesHandlerAndMessage(t *testing.T) {
	text := failing(t, func(context.Context, pgx.Tx) error { return errors.New("no stock") })
	require.Equal(t, "handler h: message orders/0@1: no stock", text)
}

func TestPanicIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	require.Equal(t, "handler h: message orders/0@1: panic: boom",
		failing(t, func(context.Context, pgx.Tx) error { panic("boom") }))
	require.Contains(t, failing(t, func(context.Context, pgx.Tx) error { panic(nil) }),
		"message orders/0@1: panic: panic called with nil")
	require.Contains(t, failing(t, func(context.Context, pgx.Tx) error {
		var none []int
		return fmt.Errorf("no %d", none[len(none)])
	}), "index out of range")
	require.Equal(t, "handler h: panic: boom",
		newStage(t).requireIsolated(failingBatch(func(context.Context, pgx.Tx) error { panic("boom") })))
}

func TestPanicIsAnErrorWithItsMessageAndStack(t *testing.T) {
	h := handlers.Each(handlers.HandlerFunc(func(context.Context, pgx.Tx, dedup.Message) error { panic("boom") }))
	err := h.HandleBatch(t.Context(), nil, messages(&dedup.Position{Topic: "orders"}, newIDs(2)...))
	var message *handlers.MessageError
	require.ErrorAs(t, err, &message)
	require.EqualValues(t, 0, message.Offset)
	var p *handlers.PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "boom", p.Value)
	require.Contains(t, string(p.Stack), "call_test.go")
}

func TestGoexitIsAFailedAttempt(t *testing.T) {
	for name, exit := range map[string]func(){"goexit": runtime.Goexit,
		"FailNow": func() { new(testing.T).FailNow() }} {
		t.Run(name, func(t *testing.T) {
			text := failing(t, func(context.Context, pgx.Tx) error { exit(); return nil })
			require.Contains(t, text, handlers.ErrGoexit.Error())
		})
	}
}

func TestSwallowedSQLErrorIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	swallow := func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, `select 1/0`)
		return nil
	}
	require.Equal(t, "handler h: message orders/0@1: "+dedup.ErrAborted.Error(), failing(t, swallow))
	require.Equal(t, "handler h: "+dedup.ErrAborted.Error(), newStage(t).requireIsolated(failingBatch(swallow)))
}

func TestSwallowedSQLErrorBehindASavepointIsTheHandlersAffair(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"Rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		require.Equal(t, "handler h: message orders/0@1: "+dedup.ErrNotYours.Error(), failing(t, end), name)
	}
	for _, sql := range []string{"commit", "rollback", "rollback; begin", "commit and chain", "rollback and chain",
		"abort; begin; select 1"} {
		for how, end := range map[string]func(ctx context.Context, tx pgx.Tx){
			"tx":   func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol) },
			"conn": func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Conn().PgConn().Exec(ctx, sql).ReadAll() },
		} {
			t.Run(sql+" by "+how, func(t *testing.T) {
				end := func(ctx context.Context, tx pgx.Tx) error { end(ctx, tx); return nil }
				require.Contains(t, failing(t, end), dedup.ErrEnded.Error())
				require.Contains(t, newStage(t).requireIsolated(failingBatch(end)), dedup.ErrEnded.Error())
			})
		}
	}
}

// hanging is a handler that never ends on the message at offset 1 until it is released, and how its calls ended.
func hanging(hang func(ctx context.Context, tx pgx.Tx) error) (h handlers.BatchHandler, ended <-chan error) {
	ends := make(chan error, 8)
	return failingBatch(func(ctx context.Context, tx pgx.Tx) error {
		err := hang(ctx, tx)
		ends <- err
		return err
	}), ends
}

// enough for messages that are handled, on a busy machine too.
const shortTimeLimit = 500 * time.Millisecond

func TestHungHandlerIsCutOff(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.retry = handlers.Retry{Base: time.Hour, Cap: time.Hour}
	release := make(chan struct{})
	s.cfg.HandlerTimeout = shortTimeLimit
	h, ended := hanging(func(ctx context.Context, tx pgx.Tx) error {
		<-release
		_, err := tx.Exec(context.Background(), `insert into effects (handler) values ('late')`)
		return err
	})
	text := s.requireSetApart(h)
	require.Contains(t, text, handlers.ErrAbandoned.Error())
	require.Contains(t, text, handlers.ErrHandlerTimeout.Error())
	close(release)
	for range 2 { // with the others, and alone
		require.Error(t, <-ended, "its transaction is gone")
	}
	require.Zero(t, s.effects("late"))
}

func TestHandlerHungInAStatementIsCutOff(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.retry = handlers.Retry{Base: time.Hour, Cap: time.Hour}
	s.cfg.HandlerTimeout = 3 * time.Second // it is in the statement by then
	h, ended := hanging(func(_ context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), `select pg_sleep(600)`)
		return err
	})
	require.Contains(t, s.requireSetApart(h), handlers.ErrAbandoned.Error())
	for range 2 {
		require.Error(t, <-ended)
	}
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_stat_activity where query like '%pg_sleep(600)%' and state = 'active'
			and datname = current_database() and pid <> pg_backend_pid()`) == 0
	}, 3*time.Minute, 5*time.Millisecond, "the server's side ends too")
}

func TestHandlerThatObeysItsTimeLimitIsNotCutOff(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.retry = handlers.Retry{Base: time.Hour, Cap: time.Hour}
	s.cfg.HandlerTimeout = shortTimeLimit
	s.cfg.AbandonAfter = time.Minute
	h, _ := hanging(func(ctx context.Context, tx pgx.Tx) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	text := s.requireSetApart(h)
	require.Contains(t, text, handlers.ErrHandlerTimeout.Error())
	require.NotContains(t, text, handlers.ErrAbandoned.Error())
}

func TestGoroutineLeftBehindReachesNoLaterBatch(t *testing.T) {
	t.Parallel()
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

func TestStatementLeftRunningIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ended := make(chan error, 8)
	text := s.requireIsolated(failingBatch(func(ctx context.Context, tx pgx.Tx) error {
		var session int // the one of the attempt before may not have ended yet
		if err := tx.QueryRow(ctx, `select pg_backend_pid()`).Scan(&session); err != nil {
			return err
		}
		go func() {
			_, err := tx.Exec(context.Background(), `select pg_sleep(600)`)
			ended <- err
		}()
		for s.count(`select count(*) from pg_stat_activity
			where pid = $1 and query = 'select pg_sleep(600)' and state = 'active'`, session) == 0 &&
			wait.Sleep(ctx, time.Millisecond) {
		}
		return nil
	}))
	require.Equal(t, "handler h: "+dedup.ErrBusy.Error(), text)
	for range 2 { // with the others, and alone
		require.Error(t, <-ended)
	}
}
