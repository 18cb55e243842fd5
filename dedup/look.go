package dedup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Look sets each entry's Outcome to what Accept would set it to, and changes nothing. An entry of a scope that does
// not exist, see LookUpScopes, is new. Twins among the entries are told apart as Accept tells them.
func (s *Store) Look(ctx context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	cols := columnPool.Get().(*columns)
	defer cols.release()
	cols.sort(entries)
	scopes, ids, fingerprints := cols.acceptKeys(entries)
	var outcomes []int16
	err := s.Answered(ctx, 0, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.db.Pool, db.Reading, func(tx pgx.Tx) error {
			registerTypes(tx.Conn())
			return tx.QueryRow(ctx, s.db.SQL(`select firstseen.look($1, $2, $3)`), scopes, ids,
				fingerprints).Scan(&outcomes)
		})
	})
	if err != nil {
		return fmt.Errorf("look for %d messages in inbox %s: %w", len(cols.order), s.cfg.Inbox, err)
	}
	(&Batch{Entries: entries}).setOutcomes(cols, outcomes)
	return nil
}

const knownScopesSQL = `
select w.ordinal, s.scope_id
from unnest($2::text[], $3::text[]) with ordinality w (handler, tenant, ordinal)
join firstseen.scopes s on s.inbox = $1 and s.handler = w.handler and s.tenant = w.tenant`

// LookUpScopes gives the number of each scope, in the order of keys, and makes none: one that does not exist is -1 and
// below, a number of its own for each key.
func (s *Store) LookUpScopes(ctx context.Context, keys []ScopeKey) ([]int32, error) {
	handlers, tenants := make([]string, len(keys)), make([]string, len(keys))
	ids := make([]int32, len(keys))
	for i, k := range keys {
		handlers[i], tenants[i], ids[i] = k.Handler, k.Tenant, -1-int32(i)
	}
	err := s.Answered(ctx, 0, func(ctx context.Context) error {
		rows, err := s.db.Pool.Query(ctx, s.db.SQL(knownScopesSQL), s.cfg.Inbox, handlers, tenants)
		if err != nil {
			return err
		}
		var at int
		var id int32
		_, err = pgx.ForEachRow(rows, []any{&at, &id}, func() error { ids[at-1] = id; return nil })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up scopes of inbox %s: %w", s.cfg.Inbox, err)
	}
	return ids, nil
}
