package dedup_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/firstseen/firstseen/dedup"
)

// model is what the tables should hold: IDs by scope with the place of their first copy, and positions.
type model struct {
	seen map[seenKey]place
	next [2]int64
}

type seenKey struct {
	scope int32
	id    uuid.UUID
}

type place struct {
	partition int32
	offset    int64
}

// Any batches with any duplicates, in any scopes and two partitions, some rolled back, leave the tables as a map
// would be.
func TestTablesAreWhatASimpleModelSays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	scopes := s.scopes(dedup.ScopeKey{Handler: "a"}, dedup.ScopeKey{Handler: "b"},
		dedup.ScopeKey{Handler: "a", Tenant: "x"})
	rapid.Check(t, func(r *rapid.T) {
		s.exec(`truncate firstseen.message_dedup, firstseen.inbox, firstseen.positions`)
		m := &model{seen: map[seenKey]place{}}
		positions := [2]*dedup.Position{s.position(0), s.position(1)}
		ids := newIDs(rapid.IntRange(1, 30).Draw(r, "ids"))
		for range rapid.IntRange(1, 20).Draw(r, "batches") {
			partition := rapid.IntRange(0, 1).Draw(r, "partition")
			if rapid.IntRange(0, 9).Draw(r, "rebalance") == 0 {
				positions[partition] = s.position(int32(partition))
			}
			b := drawBatch(r, positions[partition], scopes, ids)
			commit := rapid.IntRange(0, 3).Draw(r, "commit") > 0
			want := m.take(b, partition, commit)
			tx, err := s.store.Accept(context.Background(), b)
			require.NoError(r, err)
			defer tx.Rollback(context.Background()) // or the next try waits for its locks
			require.Equal(r, want, outcomes(b))
			if commit {
				require.NoError(r, tx.Commit(context.Background()))
			} else {
				tx.Rollback(context.Background())
			}
		}
		m.requireTables(r, s)
	})
}

func drawBatch(r *rapid.T, p *dedup.Position, scopes []int32, ids []uuid.UUID) *dedup.Batch {
	b := &dedup.Batch{Position: p, Next: p.Next}
	for range rapid.IntRange(0, 12).Draw(r, "messages") {
		id := uuid.New()
		if rapid.Bool().Draw(r, "known") {
			id = rapid.SampledFrom(ids).Draw(r, "id")
		}
		b.Entries = append(b.Entries, dedup.Entry{Scope: rapid.SampledFrom(scopes).Draw(r, "scope"),
			Message: &dedup.Message{ID: id, Topic: "orders", Partition: p.Partition, Offset: b.Next}})
		b.Next += rapid.Int64Range(1, 3).Draw(r, "gap")
	}
	return b
}

func (m *model) take(b *dedup.Batch, partition int, commit bool) []dedup.Outcome {
	want := make([]dedup.Outcome, len(b.Entries))
	added := map[seenKey]place{}
	for i, e := range b.Entries {
		key := seenKey{e.Scope, e.Message.ID}
		_, old := m.seen[key]
		if _, twin := added[key]; !old && !twin {
			added[key] = place{e.Message.Partition, e.Message.Offset}
			want[i] = isNew
		}
	}
	if commit {
		for k, v := range added {
			m.seen[k] = v
		}
		m.next[partition] = b.Next
	}
	return want
}

func (m *model) requireTables(r *rapid.T, s *stage) {
	rows, err := s.admin.Query(context.Background(), `select d.scope_id, d.message_id, i."partition", i."offset"
		from firstseen.message_dedup d left join firstseen.inbox i
		on i.received_at = d.first_seen_at and i.scope_id = d.scope_id and i.message_id = d.message_id`)
	require.NoError(r, err)
	defer rows.Close()
	got := map[seenKey]place{}
	for rows.Next() {
		var k seenKey
		var v place
		require.NoError(r, rows.Scan(&k.scope, &k.id, &v.partition, &v.offset))
		got[k] = v
	}
	require.NoError(r, rows.Err())
	require.Equal(r, m.seen, got)
	require.Equal(r, len(m.seen), s.count(`select count(*) from firstseen.inbox`))
	next := []int64{0, 0}
	for i := range next {
		next[i] = int64(s.count(`select next_offset from firstseen.positions where "partition" = $1`, i))
	}
	require.True(r, slices.Equal(m.next[:], next), "%v %v", m.next, next)
}
