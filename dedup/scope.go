package dedup

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

// ScopeKey is what a message ID is unique within, in the store's inbox: the same message runs once for each
// handler and, where tenants share a topic, once for each tenant.
type ScopeKey struct{ Handler, Tenant string }

// scopeCache remembers committed scopes only. It forgets everything when it is full: scopes are cheap to
// look up, and a stream with ever new tenants must not grow it without bound.
type scopeCache struct {
	mu  sync.Mutex
	ids map[ScopeKey]int32
}

const maxCachedScopes = 100_000

func (c *scopeCache) get(keys []ScopeKey, ids []int32) (missing []ScopeKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range keys {
		id, ok := c.ids[k]
		if !ok {
			missing = append(missing, k)
		}
		ids[i] = id
	}
	return missing
}

func (c *scopeCache) put(found map[ScopeKey]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil || len(c.ids)+len(found) > maxCachedScopes {
		c.ids = map[ScopeKey]int32{}
	}
	for k, id := range found {
		c.ids[k] = id
	}
}

// forget has all scopes looked up again.
func (c *scopeCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = nil
}

// Scopes gives the number of each scope, in the order of keys, and makes those that are new in a transaction
// of its own.
func (s *Store) Scopes(ctx context.Context, keys []ScopeKey) ([]int32, error) {
	ids := make([]int32, len(keys))
	missing := s.scopes.get(keys, ids)
	if len(missing) == 0 {
		return ids, nil
	}
	found, err := s.resolveScopes(ctx, missing)
	if err != nil {
		return nil, fmt.Errorf("resolve scopes of inbox %s: %w", s.cfg.Inbox, err)
	}
	s.scopes.put(found)
	for i, k := range keys {
		if id, ok := found[k]; ok {
			ids[i] = id
		}
	}
	return ids, nil
}

// resolveScopes asks twice: a scope that another transaction made in between is seen by a new statement only.
func (s *Store) resolveScopes(ctx context.Context, keys []ScopeKey) (map[ScopeKey]int32, error) {
	handlers, tenants := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		handlers[i], tenants[i] = k.Handler, k.Tenant
	}
	found := make(map[ScopeKey]int32, len(keys))
	for range 2 {
		err := s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			return s.readScopes(ctx, tx, handlers, tenants, found)
		})
		if err != nil {
			return nil, err
		}
		if !anyMissing(keys, found) {
			return found, nil
		}
	}
	return nil, fmt.Errorf("%d scopes asked for, %d found", len(keys), len(found))
}

const resolveScopesSQL = `select handler, tenant, scope_id from firstseen.resolve_scopes($1, $2, $3)`

func (s *Store) readScopes(ctx context.Context, tx pgx.Tx, handlers, tenants []string,
	found map[ScopeKey]int32) error {
	rows, err := tx.Query(ctx, s.db.SQL(resolveScopesSQL), s.cfg.Inbox, handlers, tenants)
	if err != nil {
		return err
	}
	var k ScopeKey
	var id int32
	_, err = pgx.ForEachRow(rows, []any{&k.Handler, &k.Tenant, &id}, func() error {
		found[k] = id
		return nil
	})
	return err
}

func anyMissing(keys []ScopeKey, found map[ScopeKey]int32) bool {
	for _, k := range keys {
		if _, ok := found[k]; !ok {
			return true
		}
	}
	return false
}
