package deduptest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// poolLimit bounds the wait for the connections of a pool at a test's end. A test that has failed may never give them.
const poolLimit = 10 * time.Second

// OpenPool opens a pool on a DSN, which is closed at the test's end; change may be nil. A connection that is not given
// back by then, as by a test that failed within a transaction, is an error of the test and does not hold it up.
func OpenPool(t testing.TB, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	config.MaxConns = max(config.MaxConns, poolSize)
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool, poolLimit) })
	return pool
}

// poolSize is enough for a consumer with its defaults, on a machine with few cores too.
const poolSize = 10

func closePool(t testing.TB, pool *pgxpool.Pool, limit time.Duration) {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(limit):
		t.Errorf("deduptest: %d connections of a pool were not given back", pool.Stat().AcquiredConns())
	}
}
