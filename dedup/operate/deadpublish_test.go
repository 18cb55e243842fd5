package operate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

// publishing notes the IDs that it is handed, and gives all the same fate.
func publishing(ids *[]uuid.UUID,
	fate operate.Fate) func(context.Context, []operate.DeadLetter) ([]operate.Fate, error) {
	return func(_ context.Context, letters []operate.DeadLetter) ([]operate.Fate, error) {
		fates := make([]operate.Fate, len(letters))
		for i, l := range letters {
			*ids, fates[i] = append(*ids, l.Message.ID), fate
		}
		return fates, nil
	}
}

// published gives the IDs of one chunk that is published.
func (w *ward) published() (ids []uuid.UUID) {
	w.t.Helper()
	n, err := w.inbox.PublishDead(w.t.Context(), time.Minute, publishing(&ids, operate.Published))
	require.NoError(w.t, err)
	require.Len(w.t, ids, n)
	return ids
}

// bury puts n dead letters in a scope, that died one after the other, with the same payload.
func (w *ward) bury(scope int32, n int, payload []byte) {
	w.t.Helper()
	w.exec(`insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason, payload)
		select $1, gen_random_uuid(), 'orders', 0, i, 'permanent', $3 from generate_series(1, $2) i`,
		scope, n, payload)
}

func TestDeadLettersArePublishedOnceInTheOrderTheyDied(t *testing.T) {
	w := newWard(t)
	m := []dedup.Message{message(0, "a"), message(1, "b"), message(2, "a")}
	w.kill(m[0], m[1])
	w.kill(m[2])
	require.Equal(t, []uuid.UUID{m[0].ID, m[1].ID, m[2].ID}, w.published())
	require.Empty(t, w.published())
	require.Equal(t, 3, w.count(`select count(*) from firstseen.dead_letters where published_at <= clock_timestamp()`))
}

func TestALetterIsPublishedThoughItsTransactionCommitsAfterLaterOnes(t *testing.T) {
	w := newWard(t)
	scope := w.scope("book")
	late, err := w.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = late.Rollback(context.Background()) }()
	m := message(0, "a")
	_, err = late.Exec(t.Context(), `insert into firstseen.dead_letters (scope_id, message_id, topic, reason, died_at)
		values ($1, $2, 'orders', 'permanent', now() - interval '1 h')`, scope, m.ID)
	require.NoError(t, err)
	w.kill(message(1, "b"))
	require.Len(t, w.published(), 1)
	require.NoError(t, late.Commit(t.Context()))
	require.Equal(t, []uuid.UUID{m.ID}, w.published())
}

func TestTwoPublishersAtOnceGetDifferentLetters(t *testing.T) {
	w := newWard(t)
	w.bury(w.scope("book"), 700, nil)
	var first, second []uuid.UUID
	n, err := w.inbox.PublishDead(t.Context(), time.Minute, func(ctx context.Context,
		letters []operate.DeadLetter) ([]operate.Fate, error) {
		for n := 1; n > 0; {
			var err error
			n, err = w.inbox.PublishDead(ctx, time.Minute, publishing(&second, operate.Published))
			require.NoError(t, err)
		}
		return publishing(&first, operate.Published)(ctx, letters)
	})
	require.NoError(t, err)
	require.Equal(t, 500, n)
	require.Len(t, second, 200)
	require.Empty(t, w.published())
	all := map[uuid.UUID]bool{}
	for _, id := range append(first, second...) {
		all[id] = true
	}
	require.Len(t, all, 700)
}

func TestALetterIsHandedOutAgainUntilItsFateIsKnown(t *testing.T) {
	w := newWard(t)
	m := []dedup.Message{message(0, "a"), message(1, "b"), message(2, "c")}
	w.kill(m...)
	away := errors.New("away")
	_, err := w.inbox.PublishDead(t.Context(), time.Minute, func(context.Context,
		[]operate.DeadLetter) ([]operate.Fate, error) {
		return []operate.Fate{operate.Published, operate.Unpublished, operate.Unpublishable}, away
	})
	require.ErrorIs(t, err, away)
	require.Equal(t, 1, w.count(`select count(*) from firstseen.dead_letters where published_at = 'infinity'`))

	crashing := func(context.Context, []operate.DeadLetter) ([]operate.Fate, error) {
		w.exec(`select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and state = 'idle in transaction' and pid <> pg_backend_pid()`)
		require.Eventually(t, func() bool { // it keeps its locks until it is gone
			return w.count(`select count(*) from pg_stat_activity
				where datname = current_database() and state = 'idle in transaction' and pid <> pg_backend_pid()`) == 0
		}, 3*time.Minute, 5*time.Millisecond)
		return []operate.Fate{operate.Published}, nil
	}
	_, err = w.inbox.PublishDead(t.Context(), time.Minute, crashing)
	require.Error(t, err)
	require.Equal(t, []uuid.UUID{m[1].ID}, w.published())
}

func TestALetterThatDiesAgainIsPublishedAgain(t *testing.T) {
	w := newWard(t)
	m := message(0, "a")
	w.kill(m)
	require.Len(t, w.published(), 1)
	require.Equal(t, 1, w.redrive(operate.Filter{}))
	require.Empty(t, w.published())
	w.settle()
	require.Equal(t, []uuid.UUID{m.ID}, w.published())
	require.Empty(t, w.published())
}

func TestAChunkIsBoundedInBytes(t *testing.T) {
	w := newWard(t)
	w.bury(w.scope("book"), 3, []byte(strings.Repeat("x", 200<<10)))
	w.bury(w.scope("book"), 1, []byte(strings.Repeat("x", 600<<10)))
	for _, n := range []int{2, 1, 1, 0} {
		require.Len(t, w.published(), n)
	}
}

func TestLettersOfOtherInboxesAreLeftAlone(t *testing.T) {
	w := newWard(t)
	w.kill(message(0, "a"))
	other, err := dedup.Open(t.Context(), w.pool, dedup.Config{Inbox: "other"})
	require.NoError(t, err)
	n, err := operate.Of(other).PublishDead(t.Context(), time.Minute, publishing(&[]uuid.UUID{}, operate.Published))
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestPublishedLettersCostNothingAnyMore(t *testing.T) {
	w := newWard(t)
	for i := range 5 {
		w.bury(w.scope(fmt.Sprint("handler-", i)), 20_000, nil)
	}
	w.exec(`update firstseen.dead_letters set published_at = now()`)
	w.exec(`vacuum analyze firstseen.dead_letters`)
	w.kill(message(0, "a"))
	var plans strings.Builder
	store, err := dedup.Open(t.Context(), deduptest.Explained(t, w.dsn, &plans), dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	var ids []uuid.UUID
	for range 8 { // more than it takes for a generic plan
		_, err = operate.Of(store).PublishDead(t.Context(), time.Minute, publishing(&ids, operate.Unpublished))
		require.NoError(t, err)
	}
	require.Len(t, ids, 8)
	require.Contains(t, plans.String(), "dead_letters_unpublished")
	require.NotRegexp(t, `Seq Scan on dead_letters`, plans.String())
	require.NotRegexp(t, `Scan using dead_letters_died`, plans.String())
}
