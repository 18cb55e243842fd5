package operate_test

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/migrations"
)

// A message was given up. What failed is mended, and it is given back to its handler.
func ExampleInbox() {
	ctx := context.Background()
	server, err := pgserver.Start(ctx, pgserver.Config{}) // your Postgres
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if err := giveUpAndRedrive(ctx, server.DSN("postgres")); err != nil {
		fmt.Println(err)
	}
	// Output:
	// orders/0@7: attempts_exhausted: the ledger is down
	// redriven: 1
	// pending: 1
}

func giveUpAndRedrive(ctx context.Context, dsn string) error {
	if _, err := migrations.Up(ctx, dsn, migrations.Config{}); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := giveUp(ctx, pool); err != nil {
		return err
	}
	inbox, err := operate.Open(ctx, pool, dedup.Config{Inbox: "billing"})
	if err != nil {
		return err
	}
	letters, _, err := inbox.Messages(ctx, operate.Listing{Status: operate.StatusDead, Limit: 10,
		Filter: operate.Filter{Topic: "orders"}})
	if err != nil {
		return err
	}
	for _, d := range letters {
		fmt.Printf("%s/%d@%d: %s: %s\n", d.Message.Topic, d.Message.Partition, d.Message.Offset, d.Reason, d.Error)
	}
	n, err := inbox.Redrive(ctx, operate.Filter{Topic: "orders"}, operate.By{Actor: "ann", Why: "the ledger is back"})
	if err != nil {
		return err
	}
	fmt.Println("redriven:", n)
	backlog, err := inbox.Backlog(ctx)
	if err != nil {
		return err
	}
	fmt.Println("pending:", backlog[0].Pending)
	return nil
}

// giveUp is what a consumer does at a message's last attempt.
func giveUp(ctx context.Context, pool *pgxpool.Pool) error {
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "billing"})
	if err != nil {
		return err
	}
	scopes, err := store.Scopes(ctx, []dedup.ScopeKey{{Handler: "book"}})
	if err != nil {
		return err
	}
	m := &dedup.Message{ID: uuid.MustParse("0190b5e2-7c1a-7def-8123-456789abcdef"), Topic: "orders", Offset: 7}
	tx, err := store.Accept(ctx, &dedup.Batch{Entries: []dedup.Entry{{Scope: scopes.IDs[0], Message: m, Lane: m.ID,
		State: dedup.Dead, Attempts: 10, Reason: "attempts_exhausted", Error: "the ledger is down"}}})
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}
