package handlers_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers"
)

// A process that goes on over a failover that has lost transactions knows tenants by numbers that others have been
// given since: their messages are not taken for its own.
func TestTenantsAreNotMistakenForOneAnotherAfterAFailover(t *testing.T) {
	t.Parallel()
	server := deduptest.StartServer(t, pgserver.Config{})
	db := deduptest.Migrated(t, server.DSN("postgres"))
	s := newStageOn(t, db, db.DSN)
	s.register("h", effect("h"))
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, server.Backup(t.Context(), backup))
	s.admin.Reset()
	p, id := s.processor(), uuid.New()
	s.requireNew(p, id, "red")
	require.NoError(t, server.Restore(t.Context(), backup))
	s.admin.Reset()
	other := newProcessorOf(t, s, db)
	s.requireNew(other, id, "blue")
	require.Equal(t, 1, s.count(`select count(*) from firstseen.scopes`))

	s.requireNew(p, id, "red")
	require.Equal(t, 2, s.effects("h"))
	require.Equal(t, 2, s.count(`select count(distinct tenant) from firstseen.inbox join firstseen.scopes using (scope_id)`))
}

// requireNew has a message from no partition be handled, once Postgres answers.
func (s *stage) requireNew(p *handlers.Processor, id uuid.UUID, tenant string) {
	s.t.Helper()
	var result handlers.Result
	require.Eventually(s.t, func() (done bool) {
		var err error
		result, err = p.Process(s.t.Context(),
			handlers.Batch{Messages: []dedup.Message{{ID: id, Topic: "orders", Tenant: tenant}}})
		return err == nil
	}, 3*time.Minute, 20*time.Millisecond)
	require.Equal(s.t, handlers.Result{New: 1}, result)
}

// newProcessorOf is a processor of another process on the same inbox.
func newProcessorOf(t *testing.T, s *stage, db *deduptest.DB) *handlers.Processor {
	t.Helper()
	store, err := dedup.Open(t.Context(), deduptest.OpenPool(t, db.DSN, nil), dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	cfg := s.cfg
	cfg.Store = store
	p, err := handlers.NewProcessor(cfg)
	require.NoError(t, err)
	return p
}
