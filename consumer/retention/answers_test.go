package retention

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

// answered are as many answers to HTTP requests, whose time is over since or to come.
func answered(t *testing.T, db *deduptest.DB, n int, expires string) {
	t.Helper()
	_, err := db.Pool.Exec(t.Context(),
		`insert into firstseen.idempotency (id, key_hash, tenant, scope, route, fingerprint, status, expires_at)
		select sha256(($2 || i)::bytea), '', '', '', '', '', 200, now() + $2::text::interval from generate_series(1, $1::int) i`,
		n, expires)
	require.NoError(t, err)
}

func answersLeft(t *testing.T, db *deduptest.DB) (n int) {
	t.Helper()
	require.NoError(t, db.Pool.QueryRow(t.Context(), `select count(*) from firstseen.idempotency`).Scan(&n))
	return n
}

// sweep runs answers' loop until the test ends or stop is called.
func sweep(t *testing.T, db *deduptest.DB, dsn string, every time.Duration) (log *deduptest.Log, stop func()) {
	t.Helper()
	log = &deduptest.Log{}
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	answers := &Answers{Pool: pool, Every: every, Logger: slog.New(slog.NewTextHandler(log, nil))}
	go func() { defer close(done); answers.Loop(ctx) }()
	stop = func() { cancel(); <-done; pool.Close() }
	t.Cleanup(stop)
	return log, stop
}

func TestAnswersWhoseTimeIsOverAreSweptAtTheStartAndThenAgain(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	answered(t, db, 1200, "-1 second")
	answered(t, db, 3, "1 hour")
	pool := &Answers{Pool: db.Pool}
	n, err := pool.Expired(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1200, n)
	log, _ := sweep(t, db, db.DSN, time.Hour)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "answers=1200") },
		3*time.Minute, 5*time.Millisecond)
	require.Equal(t, 3, answersLeft(t, db))

	log, stop := sweep(t, db, db.DSN, time.Millisecond)
	answered(t, db, 2, "-2 seconds")
	require.Eventually(t, func() bool { return answersLeft(t, db) == 3 }, 3*time.Minute, 5*time.Millisecond)
	stop()
	require.NotContains(t, log.String(), "answers=0")
}

func TestSweepThatIsEndedIsNoFailure(t *testing.T) {
	t.Parallel()
	var log deduptest.Log
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answers := &Answers{Pool: deduptest.New(t).Pool, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	require.Equal(t, []string{"told before"}, answers.round(ctx, []string{"told before"}))
	require.Empty(t, log.String())
}

// Whatever keeps a sweep from its work is said once, and again once it has changed.
func TestSweepThatMayNotOrFindsNoTableSaysSoOnceAndGoesOnWhenItCan(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	answered(t, db, 1, "-1 second")
	role := "watch_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err := db.Pool.Exec(t.Context(), `create role `+role+` login; grant usage on schema firstseen to `+role+
		`; grant select on firstseen.idempotency to `+role)
	require.NoError(t, err)
	log, _ := sweep(t, db, deduptest.As(t, db.DSN, role), time.Millisecond)
	said := func(text string) func() bool {
		return func() bool { return strings.Contains(log.String(), text) }
	}
	require.Eventually(t, said("the login may not [insert update delete] on the table idempotency"),
		3*time.Minute, 5*time.Millisecond)
	require.Equal(t, 1, strings.Count(log.String(), "can't be deleted"))
	require.Equal(t, 1, answersLeft(t, db))

	_, err = db.Pool.Exec(t.Context(), `grant insert, update, delete on firstseen.idempotency to `+role)
	require.NoError(t, err)
	require.Eventually(t, said("answers=1"), 3*time.Minute, 5*time.Millisecond)
	_, err = db.Pool.Exec(t.Context(), `drop table firstseen.idempotency`)
	require.NoError(t, err)
	require.Eventually(t, said("the table idempotency is not there"), 3*time.Minute, 5*time.Millisecond)
	require.LessOrEqual(t, strings.Count(log.String(), "can't be deleted"), 3,
		"one each, and one for a sweep that the drop met on its way")
}
