package dedup_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/holds"
)

const nowhere = "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"

func TestOpenWaitsForPostgresAndSaysSo(t *testing.T) {
	db := deduptest.New(t)
	proxy := deduptest.NewProxy(t, db.DSN)
	proxy.Lead(nowhere)
	log := &deduptest.Log{}
	pool, opened := deduptest.OpenPool(t, proxy.DSN, nil), make(chan error, 1)
	go func() {
		_, err := dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test", Patience: time.Hour,
			Holds: holds.New(slog.New(slog.NewTextHandler(log, nil)))})
		opened <- err
	}()
	logged := func(text string) func() bool { return func() bool { return strings.Contains(log.String(), text) } }
	require.Eventually(t, logged("waiting: Postgres does not answer"), 3*time.Minute, 10*time.Millisecond)
	proxy.Lead(db.DSN)
	require.NoError(t, <-opened)
	require.Eventually(t, logged("goes on again"), 3*time.Minute, 10*time.Millisecond)
}

func TestOpenWaitsNoLongerThanItsPatience(t *testing.T) {
	pool := deduptest.OpenPool(t, nowhere, nil)
	quiet := holds.New(slog.New(slog.DiscardHandler))
	_, err := dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test", Patience: 300 * time.Millisecond, Holds: quiet})
	require.ErrorContains(t, err, "open inbox test: Postgres was not reached within 300ms: ")
	require.ErrorContains(t, err, "127.0.0.1:1")
	_, err = dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test", Patience: -1, Holds: quiet})
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.NotContains(t, err.Error(), "within")
	require.Empty(t, quiet.List())
}

// But for what takes its time by right: what much is read by, and partitions that are made.
func TestEachAnswerOfPostgresIsWaitedForOnlySoLong(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	proxy := deduptest.NewProxy(t, s.dsn)
	pool := deduptest.OpenPool(t, proxy.DSN, func(c *pgxpool.Config) { c.MaxConns = 50 }) // each ends one
	store, err := dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test", AnswerTimeout: 200 * time.Millisecond,
		Patience: 3 * time.Minute, Holds: holds.New(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	p, id := s.position(0), uuid.New()
	claim := dedup.Claim{Scope: s.scope, Lane: id}
	key := []dedup.ScopeKey{{Handler: "h", Tenant: "new"}}
	for name, ask := range map[string]func(ctx context.Context) error{
		"Accept":     func(ctx context.Context) error { _, err := store.Accept(ctx, s.batch(p, id)); return err },
		"Look":       func(ctx context.Context) error { return store.Look(ctx, s.batch(p, id).Entries) },
		"Server":     func(ctx context.Context) error { _, err := store.Server(ctx); return err },
		"Pauses":     func(ctx context.Context) error { _, err := store.Pauses(ctx); return err },
		"Scopes":     func(ctx context.Context) error { _, err := store.Scopes(ctx, key); return err },
		"Rights":     func(ctx context.Context) error { _, err := store.MissingRights(ctx, ""); return err },
		"Acquire":    func(ctx context.Context) error { _, err := store.Acquire(ctx, "c", "orders", 1, "o"); return err },
		"Reposition": func(ctx context.Context) error { return store.Reposition(ctx, p, 0, uuid.Nil, nil) },
		"Excuse":     func(ctx context.Context) error { return store.Excuse(ctx, p) },
		"Recall":     func(ctx context.Context) error { return store.Recall(ctx, p) },
		"Unfinished": func(ctx context.Context) error { _, err := store.Unfinished(ctx, "orders", 0, 1); return err },
		"KnowsTopic": func(ctx context.Context) error { _, err := store.KnowsTopic(ctx, "c", "orders"); return err },
		"Begin": func(ctx context.Context) error {
			_, err := store.Begin(ctx, "c", "new", uuid.Nil, map[int32]int64{0: 0}, nil)
			return err
		},
		"Forget": func(ctx context.Context) error {
			_, err := store.ForgetPartitions(ctx, "c", "orders", id, 1)
			return err
		},
		"LookUp": func(ctx context.Context) error { _, err := store.LookUpScopes(ctx, key); return err },
		"Claim":  func(ctx context.Context) error { _, err := store.ClaimLanes(ctx, "h", 1, time.Minute); return err },
		"Announce": func(ctx context.Context) error {
			_, _, _, err := store.Announce(ctx, claim, id, time.Minute, 3, false)
			return err
		},
		"Keep":    func(ctx context.Context) error { return store.KeepLane(ctx, claim, time.Minute) },
		"Cancel":  func(ctx context.Context) error { return store.CancelAttempt(ctx, claim, id) },
		"Release": func(ctx context.Context) error { return store.ReleaseLanes(ctx, []dedup.Claim{claim}, 0) },
	} {
		require.NoError(t, pool.Ping(t.Context()))
		proxy.SilenceOpen()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.ErrorIs(t, ask(ctx), dedup.ErrNoAnswer, name)
		cancel()
	}
	proxy.Close() // or closing the pool would wait for answers
}
