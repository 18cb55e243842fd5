package main

import (
	"encoding/json"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

func TestRunSaysThatPostgresIsSilentAndEndsInTimeOnSIGTERM(t *testing.T) {
	t.Parallel()
	s := newShop(t, booking)
	proxy := deduptest.NewProxy(t, s.db.DSN)
	p := start(t, s.config(proxy.DSN)+"http: {listen: \"127.0.0.1:0\"}\n", "run")
	s.produce(0, 50)
	eventually(t, func() bool { return s.booked() == 50 })
	proxy.Silence()
	s.produce(50, 100)
	eventually(t, func() bool {
		_, body := p.ask("/healthz")
		var health struct {
			Status string
			Checks []struct{ Name, Status, Reason string }
		}
		require.NoError(t, json.Unmarshal([]byte(body), &health))
		return slices.ContainsFunc(health.Checks, func(c struct{ Name, Status, Reason string }) bool {
			return c.Name == "postgres" && c.Status == "degraded"
		})
	})
	began := time.Now()
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.Less(t, time.Since(began), time.Minute)
	require.Equal(t, 50, s.booked())

	proxy.Speak()
	next := start(t, s.config(proxy.DSN), "run")
	eventually(t, func() bool { return s.booked() == 100 })
	next.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, next.exit())
}

func TestRunWaitsWhileTheAddressLeadsToAStandby(t *testing.T) {
	t.Parallel()
	primary := deduptest.StartServer(t, pgserver.Config{})
	s := newShopOn(t, deduptest.Migrated(t, primary.DSN("postgres")), booking)
	standby := deduptest.StartStandby(t, primary)
	s.produce(0, 10)
	p := start(t, s.config(standby.DSN("postgres")), "run")
	p.awaitLog("waiting: Postgres takes no writes")
	s.db.Pool = deduptest.OpenPool(t, standby.DSN("postgres"), nil)
	_, err := s.db.Pool.Exec(t.Context(), `select pg_promote()`)
	require.NoError(t, err)
	eventually(t, func() bool { return s.booked() == 10 })
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	s.requireAllCommitted()
}
