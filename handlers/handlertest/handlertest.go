// Package handlertest tries handlers on single messages, with a Postgres and without Kafka. deduptest.New gives a test
// a database with firstseen's schema.
package handlertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// Handle has h handle a message as firstseen would: in the transaction that marks it as seen, which commits where h
// returns nil. Otherwise nothing has happened, and it returns h's error, for errors.Is and [handlers.ReasonOf]; so it
// does with what the commit fails on. A message whose ID was handled before is not handled again. One without an ID
// gets a new one, and one without a topic is of "test".
//
// The caller's goroutine is h's, so that h may end the test, and so may its panic.
func Handle(t testing.TB, pool *pgxpool.Pool, h handlers.BatchHandler, m dedup.Message) error {
	t.Helper()
	tx, isNew, err := begin(pool, &m)
	if err != nil {
		t.Fatalf("handlertest: %v", err)
	}
	ctx := context.Background()
	defer tx.Rollback(ctx)
	if !isNew {
		return nil
	}
	if err := h.HandleBatch(ctx, tx.Handler(), []dedup.Message{m}); err != nil {
		return err
	}
	if err := tx.Check(); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// begin opens the transaction of a message, and says whether it is new.
func begin(pool *pgxpool.Pool, m *dedup.Message) (tx *dedup.Tx, isNew bool, err error) {
	if m.ID == uuid.Nil {
		m.ID = uuid.New()
	}
	if m.Topic == "" {
		m.Topic = "test"
	}
	ctx := context.Background()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "handlertest"})
	if err != nil {
		return nil, false, err
	}
	scopes, err := store.Scopes(ctx, []dedup.ScopeKey{{Handler: "test", Tenant: m.Tenant}})
	if err != nil {
		return nil, false, err
	}
	batch := &dedup.Batch{Entries: []dedup.Entry{{Scope: scopes.IDs[0], Message: m}}, Server: scopes.Server}
	if tx, err = store.Accept(ctx, batch); err != nil {
		return nil, false, fmt.Errorf("accept: %w", err)
	}
	return tx, batch.Entries[0].Outcome == dedup.New, nil
}
