package bench

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

func TestRawCopyWritesTheRowsThatAcceptWrites(t *testing.T) {
	ctx := context.Background()
	w := testWriters(ctx, t)
	dealt := messages(3, 1, uuid.New)
	dealt[0][1].Headers = []dedup.Header{{Key: "message-id", Value: []byte("x")}, {Key: "empty", Value: []byte{}}}
	dealt[0][2].Key = nil

	_, err := w.accept(ctx, dealt, 2)
	require.NoError(t, err)
	for _, tight := range []bool{false, true} {
		_, err := w.db.pool.Exec(ctx, `delete from firstseen.message_dedup where scope_id = $1`, w.copyScope)
		require.NoError(t, err)
		_, err = w.db.pool.Exec(ctx, `delete from firstseen.inbox where scope_id = $1`, w.copyScope)
		require.NoError(t, err)
		_, err = w.copy(ctx, dealt, 2, tight)
		require.NoError(t, err)
		require.Len(t, w.rows(ctx, t, w.copyScope, dealt[0]), 3)
		require.Equal(t, w.rows(ctx, t, w.scope, dealt[0]), w.rows(ctx, t, w.copyScope, dealt[0]), "tight %v", tight)
	}
}

func TestWhatDidNotWriteItsRowsHasNoRate(t *testing.T) {
	ctx := context.Background()
	w := testWriters(ctx, t)
	_, err := w.copy(ctx, messages(10, 1, uuid.New), 4, true)
	require.NoError(t, err)
	require.NoError(t, w.check(ctx))
	_, err = w.db.pool.Exec(ctx,
		`delete from firstseen.inbox where ctid in (select ctid from firstseen.inbox where scope_id = $1 limit 1)`,
		w.copyScope)
	require.NoError(t, err)
	require.ErrorContains(t, w.check(ctx), "9 and not 10")
}

func TestTheLastWordsOfAPostgresThatHasEndedAreTold(t *testing.T) {
	l := &lab{postgres: deduptest.StartServer(t, pgserver.Config{})}
	require.Empty(t, l.postgresEnded(t.Context()))
	require.NoError(t, l.postgres.Stop(pgserver.Immediate))
	require.Regexp(t, `(?s)^; Postgres does not answer any more\n.*received immediate shutdown request`,
		l.postgresEnded(t.Context()))
}

func testWriters(ctx context.Context, t *testing.T) *writers {
	l := &lab{postgres: deduptest.StartServer(t, pgserver.Config{}), suite: "test"}
	d, err := l.database(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { l.drop(d) })
	w, err := l.writers(ctx, d, 1)
	require.NoError(t, err)
	return w
}

// rows are the messages' rows of a scope, but for when and in which order they were written.
func (w *writers) rows(ctx context.Context, t *testing.T, scope int32, ms []dedup.Message) []map[string]any {
	ids := make([]uuid.UUID, len(ms))
	for i := range ms {
		ids[i] = ms[i].ID
	}
	rows, err := w.db.pool.Query(ctx,
		`select to_jsonb(i) - '{seq,scope_id,received_at,processed_at}'::text[] as inbox, d.fingerprint,
			d.first_seen_at = i.received_at as same
		from firstseen.inbox i join firstseen.message_dedup d using (scope_id, message_id)
		where scope_id = $1 and message_id = any($2) order by "offset"`, scope, ids)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(t, err)
	return found
}
