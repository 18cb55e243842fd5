package dedup_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestAcceptNeverScansTheDedupTable(t *testing.T) {
	db := deduptest.New(t)
	_, err := db.Pool.Exec(t.Context(), `insert into firstseen.message_dedup (scope_id, message_id)
		select 1, gen_random_uuid() from generate_series(1, 1000000)`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), `analyze firstseen.message_dedup`)
	require.NoError(t, err)
	var plans strings.Builder
	s := stageOn(t, db, deduptest.Explained(t, db.DSN, &plans), dedup.Config{})
	p, ids := s.position(0), newIDs(1000)
	for range 12 { // more than it takes for a generic plan, and for the plain insert
		s.accept(s.batch(p, newIDs(1000)...))
	}
	s.accept(s.batch(p, ids...))
	s.accept(s.batch(p, append(newIDs(500), ids[:500]...)...))
	for range 3 { // the first by the insert that copes with anything, the others by a look
		s.accept(s.batch(p, ids...))
	}

	text := plans.String()
	require.Contains(t, text, "Insert on message_dedup", "the statements inside of accept are explained")
	require.Contains(t, text, "Conflict Resolution: NOTHING")
	require.Contains(t, text, "unnest")
	const look = `Index Only Scan using message_dedup_pkey on message_dedup d `
	require.Contains(t, text, look)
	require.Contains(t, text, `Index Cond: ((scope_id = $1) AND (message_id = ANY ($2)))`)
	require.NotRegexp(t, `Scan.* on message_dedup`, strings.ReplaceAll(text, look, ""))

	_, err = s.pool.Exec(t.Context(),
		`select count(*) from firstseen.message_dedup where first_seen_at < '1999-01-01' or scope_id = 0`)
	require.NoError(t, err)
	require.Regexp(t, `Scan.* on message_dedup`, plans.String(), "a scan would have shown")
	requireLittleWAL(t, s, p, ids)
}

// requireLittleWAL accepts nothing but duplicates and looks at what that wrote.
func requireLittleWAL(t *testing.T, s *stage, p *dedup.Position, ids []uuid.UUID) {
	wal := func(accept []uuid.UUID) (n int) {
		s.exec(`checkpoint`)
		var before string
		require.NoError(t, s.admin.QueryRow(t.Context(), `select pg_current_wal_insert_lsn()::text`).Scan(&before))
		s.accept(s.batch(p, accept...))
		return s.count(`select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::text::pg_lsn)::int`, before)
	}
	require.Greater(t, wal(newIDs(1000)), 100_000)
	require.Less(t, wal(ids), 10_000)
	require.Less(t, wal(ids), 10_000)
}

func TestAcceptAllocatesLittleForAMessage(t *testing.T) {
	s := newStage(t)
	p := s.position(0)
	const size, batches = 1000, 12
	prepared := make([]*dedup.Batch, batches+2)
	for i := range prepared {
		prepared[i] = s.batch(p, newIDs(size)...)
		for j := range prepared[i].Entries {
			m := prepared[i].Entries[j].Message
			m.Key, m.Headers = []byte("key"), []dedup.Header{{Key: "trace", Value: []byte("a")}}
		}
	}
	next := 0
	allocs := testing.AllocsPerRun(batches, func() {
		b := prepared[next]
		b.Next = p.Next + size
		next++
		tx, err := s.store.Accept(context.Background(), b)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(context.Background()))
	})
	t.Logf("%.2f allocations a message", allocs/size)
	require.Less(t, allocs/size, 0.5)
}
