package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// demotable is a pool whose server can be said to have been demoted.
func demotable(t *testing.T, db *deduptest.DB) (pool *pgxpool.Pool, demoted *atomic.Bool, checks *atomic.Int64) {
	demoted, checks = &atomic.Bool{}, &atomic.Int64{}
	pool = deduptest.OpenPool(t, db.DSN, func(c *pgxpool.Config) {
		c.MaxConns = 2
		c.ConnConfig.ValidateConnect = func(context.Context, *pgconn.PgConn) error {
			checks.Add(1)
			if demoted.Load() {
				return errors.New("it was demoted")
			}
			return nil
		}
		dedup.PreparePool(c, time.Minute)
	})
	return pool, demoted, checks
}

func pids(t *testing.T, pool *pgxpool.Pool) (found []uint32) {
	t.Helper()
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		found = append(found, conn.Conn().PgConn().PID())
	}
	return found
}

func TestAnswersOfAFailoverHaveAllConnectionsChecked(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"read-only transaction": `begin read only; create table x (); rollback`,
		"session ended":         `select pg_terminate_backend(pg_backend_pid())`,
	} {
		t.Run(name, func(t *testing.T) {
			pool, demoted, checks := demotable(t, deduptest.New(t))
			before := pids(t, pool)
			pids(t, pool)
			require.EqualValues(t, 2, checks.Load(), "each once, when it was made")

			_, err := pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
			require.Error(t, err)
			demoted.Store(true)
			_, err = pool.Acquire(t.Context())
			require.ErrorContains(t, err, "it was demoted", "also the one that was idle, and a new one")
			demoted.Store(false)
			after := pids(t, pool)
			for _, pid := range before {
				require.NotContains(t, after, pid)
			}
			checked := checks.Load()
			pids(t, pool)
			pids(t, pool)
			require.LessOrEqual(t, checks.Load(), checked+2, "once for each doubt")
		})
	}
}

func TestOnlyAPrimaryIsTakenWhicheverHostAnswers(t *testing.T) {
	primary := deduptest.StartServer(t, pgserver.Config{})
	db := deduptest.Migrated(t, primary.DSN("postgres"))
	standby := deduptest.StartStandby(t, primary)
	alone := prepared(t, standby.DSN("postgres"))
	_, err := dedup.Open(t.Context(), alone, dedup.Config{Inbox: "test", Patience: -1})
	require.ErrorIs(t, err, pgconn.ErrStandbyConnection)

	both := prepared(t, twoHosts(t, standby.DSN("postgres"), primary.DSN("postgres")))
	s := stageOn(t, db, both, dedup.Config{})
	require.Equal(t, repeat(isNew, 1), s.accept(s.batch(s.position(0), uuid.New())))

	_, err = deduptest.OpenPool(t, standby.DSN("postgres"), nil).Exec(t.Context(), `select pg_promote()`)
	require.NoError(t, err)
	_, err = dedup.Open(t.Context(), alone, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
}

// It takes connections and says nothing, as a pooler does whose server is gone: at the start, and where it falls silent
// later.
func TestTheOtherHostIsTakenWhereTheFirstIsSilent(t *testing.T) {
	t.Parallel()
	const silence = 2 * time.Second
	db := deduptest.New(t)
	proxy := deduptest.NewProxy(t, db.DSN)
	pool := func() *pgxpool.Pool {
		return deduptest.OpenPool(t, twoHosts(t, proxy.DSN, db.DSN),
			func(c *pgxpool.Config) { dedup.PreparePool(c, silence) })
	}
	s := stageOn(t, db, pool(), dedup.Config{AnswerTimeout: silence})
	p := s.position(0)
	proxy.Silence()
	defer proxy.Close() // or closing the pools would wait for answers
	require.ErrorIs(t, s.tryAccept(s.batch(p, uuid.New())), dedup.ErrNoAnswer, "on the connection that is open")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, s.pool.Ping(ctx))
	require.NoError(t, s.tryAccept(s.batch(p, uuid.New())))

	s = stageOn(t, db, pool(), dedup.Config{AnswerTimeout: 3 * silence})
	require.NoError(t, s.tryAccept(s.batch(s.position(1), uuid.New())))
}

func prepared(t *testing.T, dsn string) *pgxpool.Pool {
	return deduptest.OpenPool(t, dsn, func(c *pgxpool.Config) { dedup.PreparePool(c, time.Minute) })
}

// twoHosts is the second connection string, which leads to the first one's server before its own.
func twoHosts(t *testing.T, first, second string) string {
	t.Helper()
	a, err := pgx.ParseConfig(first)
	require.NoError(t, err)
	b, err := pgx.ParseConfig(second)
	require.NoError(t, err)
	return fmt.Sprintf("host=%s,%s port=%d,%d user=%s password='%s' dbname=%s sslmode=disable", a.Host, b.Host,
		a.Port, b.Port, b.User, b.Password, b.Database)
}
