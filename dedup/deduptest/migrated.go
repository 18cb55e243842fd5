package deduptest

import (
	"context"
	"testing"
)

// Migrated brings the database that dsn names to the newest schema, for a test with a server of its own.
func Migrated(t testing.TB, dsn string) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := migrate(ctx, dsn); err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	return &DB{DSN: dsn, Pool: OpenPool(t, dsn, nil), Schema: Schema}
}
