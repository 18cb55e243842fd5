package dedup

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

// Attach is Open for a program that looks and repairs and does not consume: it makes no partitions, and needs the
// rights of the role firstseen_operator only.
func Attach(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("attach to inbox: %w", err)
	}
	s := &Store{pool: pool, cfg: cfg, sql: statementsFor(cfg.Schema)}
	if err := s.checkVersion(ctx); err != nil {
		return nil, fmt.Errorf("attach to inbox %s: %w", cfg.Inbox, err)
	}
	return s, nil
}

// On is the same inbox over another pool, for work that must not take connections from the store's own. The pool stays
// the caller's.
func (s *Store) On(pool *pgxpool.Pool) *Store {
	return &Store{pool: pool, cfg: s.cfg, sql: s.sql}
}

const inboxesSQL = `select distinct inbox from firstseen.scopes order by inbox`

// Inboxes lists the inboxes that a schema (empty: the default one) has seen a message for.
func Inboxes(ctx context.Context, pool *pgxpool.Pool, schema string) ([]string, error) {
	if schema == "" {
		schema = migrations.DefaultSchema
	}
	s := &Store{pool: pool, cfg: Config{Schema: schema, AnswerTimeout: dial.Silence}, sql: statementsFor(schema)}
	if err := s.checkVersion(ctx); err != nil {
		return nil, fmt.Errorf("list inboxes: %w", err)
	}
	inboxes, err := collect(ctx, s, pgx.RowTo[string], inboxesSQL)
	if err != nil {
		return nil, fmt.Errorf("list inboxes: %w", err)
	}
	return inboxes, nil
}

// inSchema spells a statement, which is written for the schema firstseen, for the store's.
func (s *Store) inSchema(sql string) string {
	return strings.ReplaceAll(sql, "firstseen.", pgx.Identifier{s.cfg.Schema}.Sanitize()+".")
}

// collect runs one query in the store's schema.
func collect[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var list []T
	err := answered(ctx, longLimit, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, s.inSchema(sql), args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	return list, rightsError(err)
}
