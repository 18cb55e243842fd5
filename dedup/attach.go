package dedup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

// Attach is Open for a program that looks and repairs and does not consume: it makes no partitions, and needs the
// rights of the role firstseen_operator only.
func Attach(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("attach to inbox: %w", err)
	}
	s := newStore(pool, cfg)
	if err := s.checkVersion(ctx); err != nil {
		return nil, fmt.Errorf("attach to inbox %s: %w", cfg.Inbox, err)
	}
	return s, nil
}

const inboxesSQL = `select distinct inbox from firstseen.scopes order by inbox`

// Inboxes lists the inboxes that a schema (empty: the default one) has seen a message for.
func Inboxes(ctx context.Context, pool *pgxpool.Pool, schema string) ([]string, error) {
	if schema == "" {
		schema = migrations.DefaultSchema
	}
	s := newStore(pool, Config{Schema: schema, AnswerTimeout: dial.Silence})
	if err := s.checkVersion(ctx); err != nil {
		return nil, fmt.Errorf("list inboxes: %w", err)
	}
	inboxes, err := db.Collect(ctx, s.db, pgx.RowTo[string], inboxesSQL)
	if err != nil {
		return nil, fmt.Errorf("list inboxes: %w", err)
	}
	return inboxes, nil
}
