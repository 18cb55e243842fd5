package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// ScopeKey names a scope, within which a message ID is unique, in the store's inbox: the same message runs once for
// each handler and, where tenants share a topic, once for each tenant.
type ScopeKey struct{ Handler, Tenant string }

// Scopes are the numbers of scopes.
type Scopes struct {
	IDs []int32 // in the order of the keys
	// Server is when the server was started that has them: another one, or one that was set back, may not.
	Server time.Time
}

// ErrOtherServer is returned where the scopes or the position of a batch were found on another server than the one that
// is to accept it, or before that was restarted: after a failover that has lost transactions, or a restore, their
// numbers may stand for nothing there, or for others. Ask for the scopes again, and accept it again: a position that
// is no longer its owner's is fenced then.
var ErrOtherServer = errors.New("the server was restarted, or is another one")

// scopeCache remembers committed scopes only. It forgets everything when it is full: scopes are cheap to
// look up, and a stream with ever new tenants must not grow it without bound.
type scopeCache struct {
	mu     sync.Mutex
	server time.Time // that has all of them
	ids    map[ScopeKey]int32
}

const maxCachedScopes = 100_000

// get gives the numbers that are known; missing are the other keys.
func (c *scopeCache) get(keys []ScopeKey) (found Scopes, missing []ScopeKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found = Scopes{make([]int32, len(keys)), c.server}
	for i, k := range keys {
		id, ok := c.ids[k]
		if !ok {
			missing = append(missing, k)
		}
		found.IDs[i] = id
	}
	return found, missing
}

func (c *scopeCache) put(found map[ScopeKey]int32, server time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil || !server.Equal(c.server) || len(c.ids)+len(found) > maxCachedScopes {
		c.ids, c.server = map[ScopeKey]int32{}, server
	}
	for k, id := range found {
		c.ids[k] = id
	}
}

// forget has the scopes of a server that is no more looked up again.
func (c *scopeCache) forget(server time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if server.Equal(c.server) {
		c.ids = nil
	}
}

// Scopes gives the number of each scope, in the order of keys, and makes those that are new in a transaction
// of its own. Scopes that are known cost no query.
func (s *Store) Scopes(ctx context.Context, keys []ScopeKey) (Scopes, error) {
	known, missing := s.scopes.get(keys)
	if len(missing) == 0 {
		return known, nil
	}
	found, server, err := s.resolveScopes(ctx, missing)
	if err == nil && len(missing) < len(keys) && !server.Equal(known.Server) {
		found, server, err = s.resolveScopes(ctx, keys)
	}
	if err != nil {
		return Scopes{}, fmt.Errorf("resolve scopes of inbox %s: %w", s.cfg.Inbox, err)
	}
	s.scopes.put(found, server)
	for i, k := range keys {
		if id, ok := found[k]; ok {
			known.IDs[i] = id
		}
	}
	return Scopes{known.IDs, server}, nil
}

const resolveScopesSQL = `
select handler, tenant, scope_id, pg_postmaster_start_time() from firstseen.resolve_scopes($1, $2, $3)`

// resolveScopes has scopes made where they are new. One that another transaction is making is waited for, and found:
// each statement of a volatile function has a snapshot of its own.
func (s *Store) resolveScopes(ctx context.Context, keys []ScopeKey) (
	found map[ScopeKey]int32, server time.Time, err error) {
	handlers, tenants := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		handlers[i], tenants[i] = k.Handler, k.Tenant
	}
	found = make(map[ScopeKey]int32, len(keys))
	err = s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.db.SQL(resolveScopesSQL), s.cfg.Inbox, handlers, tenants)
		if err != nil {
			return err
		}
		var k ScopeKey
		var id int32
		_, err = pgx.ForEachRow(rows, []any{&k.Handler, &k.Tenant, &id, &server}, func() error {
			found[k] = id
			return nil
		})
		return err
	})
	if err == nil && anyMissing(keys, found) {
		err = fmt.Errorf("%d scopes asked for, %d found", len(keys), len(found))
	}
	return found, server, err
}

func anyMissing(keys []ScopeKey, found map[ScopeKey]int32) bool {
	for _, k := range keys {
		if _, ok := found[k]; !ok {
			return true
		}
	}
	return false
}
