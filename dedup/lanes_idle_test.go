package dedup_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// parkOne parks a message, and gives what claims its lane, as often as it is free.
func (s *stage) parkOne() (claim func() []dedup.Claim) {
	s.t.Helper()
	b := s.batch(nil, newIDs(1)...)
	tx, err := s.store.Accept(s.t.Context(), b)
	require.NoError(s.t, err)
	b.Entries[0].Lane = b.Entries[0].Message.ID
	b.Entries[0].Park(0)
	require.NoError(s.t, tx.Commit(s.t.Context()))
	return func() []dedup.Claim {
		claims, err := s.store.ClaimLanes(s.t.Context(), "h", 10, 0)
		require.NoError(s.t, err)
		return claims
	}
}

// A statement goes on that the network fell silent in the middle of: to cancel it was as silent.
func TestLanesOfAStatementThatNobodyCanCancelAreFreeAfterAWhile(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	s := stageOn(t, db, db.Pool, dedup.Config{})
	claim := s.parkOne()
	proxy := deduptest.NewProxy(t, db.DSN)
	lost, err := dedup.Open(t.Context(), deduptest.OpenPool(t, proxy.DSN, nil),
		dedup.Config{Inbox: "test", IdleAfter: time.Second})
	require.NoError(t, err)
	tx, _, err := lost.LoadLanes(t.Context(), claim(), 1, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := tx.Handler().Exec(ctx, `select pg_sleep(1200)`)
		ended <- err
	}()
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_stat_activity where query like 'select pg_sleep%' and datname = current_database()`) == 1
	}, 3*time.Minute, 20*time.Millisecond)
	proxy.Silence()
	cancel()
	require.Error(t, <-ended)

	require.Eventually(t, func() bool { return len(claim()) == 1 }, 3*time.Minute, 20*time.Millisecond)
	proxy.Close()
	tx.Rollback(t.Context())
}

// So do those wait who have the same IDs, where no position is acquired and so no earlier owner is ended.
func TestIDsOfAProcessThatIsLostAreFreeAfterAWhile(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	s := stageOn(t, db, db.Pool, dedup.Config{})
	proxy := deduptest.NewProxy(t, db.DSN)
	lost, err := dedup.Open(t.Context(), deduptest.OpenPool(t, proxy.DSN, nil),
		dedup.Config{Inbox: "test", IdleAfter: time.Second})
	require.NoError(t, err)
	ids := newIDs(1)
	tx, err := lost.Accept(t.Context(), s.batch(nil, ids...))
	require.NoError(t, err)
	proxy.Silence()

	b := s.batch(nil, ids...)
	after, err := s.store.Accept(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, dedup.New, b.Entries[0].Outcome)
	after.Rollback(t.Context())
	proxy.Close()
	tx.Rollback(t.Context())
}

// What a role or a database says of statements is not made longer.
func TestShorterLimitOfStatementsStaysOnLanes(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{"0": "5s", "3s": "3s", "1500ms": "1500ms", "2min": "5s"} {
		db := deduptest.New(t)
		pool := deduptest.OpenPool(t, db.DSN, func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["statement_timeout"] = limit
		})
		s := stageOn(t, db, pool, dedup.Config{IdleAfter: 5 * time.Second})
		tx, _, err := s.store.LoadLanes(t.Context(), s.parkOne()(), 1, 0)
		require.NoError(t, err)
		var got string
		require.NoError(t, tx.Handler().QueryRow(t.Context(), `show statement_timeout`).Scan(&got))
		require.Equal(t, want, got, limit)
		tx.Rollback(t.Context())
	}
}

// A lane that is removed is waited for by the batches of its partition: not for as long as a handler may take.
func TestLanesWhoseEndWasNotHeardOfAreFreeSoon(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]dedup.Config{
		"after the time for an answer": {Inbox: "test", IdleAfter: time.Hour, AnswerTimeout: time.Second},
		"after a shorter limit":        {Inbox: "test", IdleAfter: 5 * time.Second, AnswerTimeout: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := deduptest.New(t)
			s := stageOn(t, db, db.Pool, dedup.Config{})
			proxy := deduptest.NewProxy(t, db.DSN)
			lost, err := dedup.Open(t.Context(), deduptest.OpenPool(t, proxy.DSN, nil), cfg)
			require.NoError(t, err)
			tx, batch, err := lost.LoadLanes(t.Context(), s.parkOne()(), 1, 0)
			require.NoError(t, err)
			batch.Entries[0].State = dedup.Processed
			proxy.SwallowAnswer("SELECT 1")
			committed := make(chan error)
			go func() { committed <- tx.Commit(t.Context()) }()
			require.Eventually(t, func() bool {
				return s.count(`select count(*) from pg_stat_activity
					where datname = current_database() and query like '%finish_lanes%' and state = 'idle in transaction'`) == 1
			}, 3*time.Minute, time.Millisecond)

			_, err = db.Pool.Exec(t.Context(),
				`set lock_timeout = '1min'; select from firstseen.lanes for key share; reset lock_timeout`)
			require.NoError(t, err)
			require.Equal(t, 1, s.count(`select count(*) from firstseen.parked`), "nothing was committed")
			if cfg.AnswerTimeout == time.Second {
				require.ErrorIs(t, <-committed, dedup.ErrNoAnswer)
				proxy.Close()
				return
			}
			proxy.Close()
			require.Error(t, <-committed)
		})
	}
}

func TestLanesOfAStoppedProcessAreFreeAfterAWhile(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	s := stageOn(t, db, db.Pool, dedup.Config{IdleAfter: 200 * time.Millisecond})
	claim := s.parkOne()
	stopped, _, err := s.store.LoadLanes(t.Context(), claim(), 1, 0)
	require.NoError(t, err)
	require.Empty(t, claim(), "while the transaction is open")

	require.Eventually(t, func() bool { return len(claim()) == 1 }, 3*time.Minute, 20*time.Millisecond)
	require.Error(t, stopped.Commit(t.Context()), "the stopped process comes back")
}
