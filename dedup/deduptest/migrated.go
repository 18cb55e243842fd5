package deduptest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Migrated brings the database that dsn names to the newest schema, for a test with a server of its own.
func Migrated(t testing.TB, dsn string) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := migrate(ctx, dsn); err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	t.Cleanup(pool.Close)
	return &DB{DSN: dsn, Pool: pool, Schema: Schema}
}
