package idempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/idempotency/idempotencytest"
)

// expired has requests whose time has been over for one hour, for two, and so on.
func (s *stage) expired(n int) {
	s.exec(`insert into firstseen.idempotency (id, key_hash, tenant, scope, route, fingerprint, status, expires_at)
		select sha256(i::text::bytea), '', '', '', '', '', 200, now() - make_interval(hours => i) from generate_series(1, $1::int) i`, n)
}

func TestSweepDeletesTheOldestFirst(t *testing.T) {
	s := newStage(t)
	s.expired(5)
	n, err := s.store.Sweep(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 2, count(t, s.db.Pool, `firstseen.idempotency where expires_at > now() - interval '150 minutes'`))
}

// Its row is older than all that is swept, and locked: to wait for it would be to wait for its handler.
func TestSweepPassesOverAnExpiredKeyThatATransactionIsAt(t *testing.T) {
	s := newStage(t)
	var swept int
	orders := s.inTransaction(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 2 {
			var err error
			swept, err = s.store.Sweep(r.Context(), 10)
			require.NoError(t, err)
		}
		s.create(w, r)
	})
	orders.post("k", `{}`)
	s.exec(`update firstseen.idempotency set expires_at = now() - interval '1 day'`)
	s.expired(2)
	require.Equal(t, http.StatusCreated, orders.post("k", `{"n":2}`).status)
	require.Equal(t, []int{2, 1}, []int{swept, s.records()})
	require.True(t, orders.post("k", `{"n":2}`).replayed())
}

func TestExpiredAreCountedAsTheyWouldBeSwept(t *testing.T) {
	s := newStage(t)
	s.expired(3)
	_, _, err := s.store.Claim(t.Context(), idempotencytest.Entry("k", "a"), time.Hour, time.Hour)
	require.NoError(t, err)
	s.exec(`update firstseen.idempotency set expires_at = now() - interval '1 day' where lease_until is not null`)
	for limit, want := range map[int]int{10: 3, 2: 2} {
		n, err := s.store.Expired(t.Context(), limit)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}

// sweeps is a store whose sweeps go as they are told to.
type sweeps struct {
	idempotencytest.Memory
	script []func() (int, error)
	at     []time.Duration // since began
	began  time.Time
}

func (s *sweeps) Sweep(context.Context, int) (int, error) {
	s.at = append(s.at, time.Since(s.began))
	do := s.script[0]
	s.script = s.script[1:]
	return do()
}

func TestSweepIsHourlyAndGoesOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store := &sweeps{began: time.Now(), script: []func() (int, error){
			func() (int, error) { return 500, errors.New("away") }, // tried again by the next, and not before
			func() (int, error) { return 500, nil },
			func() (int, error) { return 7, nil },
			func() (int, error) { return 0, nil },
			func() (int, error) { stop(); return 3, context.Canceled },
		}}
		var log deduptest.Log
		idempotency.RunSweep(ctx, store, 0, slog.New(slog.NewTextHandler(&log, nil)))
		const pause = 50 * time.Millisecond
		require.Equal(t, []time.Duration{0, time.Hour, time.Hour + pause, 2*time.Hour + pause, 3*time.Hour + pause}, store.at)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 3, "of what was swept, and what failed; nothing of the end")
		require.Contains(t, lines[0], `level=WARN msg="idempotency sweep failed" swept=500 error=away`)
		require.Contains(t, lines[1], `msg="idempotency sweep" swept=507`)
		require.Contains(t, lines[2], `level=INFO msg="idempotency sweep" swept=3`)
	})
}
