package dedup_test

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/migrations"
)

// One message arrives twice. What is done for it shares its transaction, so it is done once.
func ExampleStore() {
	ctx := context.Background()
	server, err := pgserver.Start(ctx, pgserver.Config{}) // your Postgres
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if err := greetTwice(ctx, server.DSN("postgres")); err != nil {
		fmt.Println(err)
	}
	// Output:
	// new: true
	// new: false
}

func greetTwice(ctx context.Context, dsn string) error {
	if _, err := migrations.Up(ctx, dsn, migrations.Config{}); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "greetings"})
	if err != nil {
		return err
	}
	scopes, err := store.Scopes(ctx, []dedup.ScopeKey{{Handler: "greet"}})
	if err != nil {
		return err
	}
	m := dedup.Message{ID: uuid.MustParse("0190b5e2-7c1a-7def-8123-456789abcdef"), Topic: "people",
		Value: []byte("Ada")}
	for range 2 {
		batch := &dedup.Batch{Entries: []dedup.Entry{{Scope: scopes.IDs[0], Message: &m}}, Server: scopes.Server}
		tx, err := store.Accept(ctx, batch)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		first := batch.Entries[0].Outcome == dedup.New
		fmt.Println("new:", first)
		if first {
			if _, err := tx.Handler().Exec(ctx, `create table greeted_ada ()`); err != nil {
				return err
			}
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}
