package operate_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

// back is the plan of who looks through all, from the newest on.
const back = "Index Scan Backward using dead_letters_died"

// rareLetters are 30 among 30,000, the oldest; and one of another inbox by their topic.
func rareLetters(w *ward) {
	scopes, err := w.store.Scopes(w.t.Context(), []dedup.ScopeKey{{Handler: "book"}, {Handler: "book", Tenant: "blue"},
		{Handler: "ship", Tenant: "blue"}})
	require.NoError(w.t, err)
	const letters = `insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason, died_at)
		select $1, gen_random_uuid(), $2, 0, o, 'failed', now() - o * interval '1 s' from generate_series($3::int, $4) o`
	w.exec(letters, scopes.IDs[0], "orders", 1, 30_000)
	w.exec(letters, scopes.IDs[1], "refunds", 40_001, 40_015)
	w.exec(letters, scopes.IDs[2], "refunds", 40_016, 40_030)
	w.exec(`with s as (insert into firstseen.scopes (inbox, handler, tenant) values ('another', 'book', 'blue') returning *)
		insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason)
		select scope_id, gen_random_uuid(), 'refunds', 0, 1, 'failed' from s`)
	w.exec(`analyze firstseen.dead_letters, firstseen.scopes`)
}

// What is rare is found by an index that leads to it, and what is not there is not looked for among all that is.
func TestRareDeadLettersAreNotLookedForAmongAll(t *testing.T) {
	w := newWard(t)
	rareLetters(w)
	var plans strings.Builder
	store, err := dedup.Attach(t.Context(), deduptest.Explained(t, w.dsn, &plans), dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	inbox := operate.Of(store)
	for name, test := range map[string]struct {
		filter operate.Filter
		want   int
	}{
		"tenant":              {operate.Filter{Tenant: "blue"}, 30},
		"handler":             {operate.Filter{Handler: "ship"}, 15},
		"handler and tenant":  {operate.Filter{Handler: "book", Tenant: "blue"}, 15},
		"topic":               {operate.Filter{Topic: "refunds"}, 30},
		"topic and handler":   {operate.Filter{Topic: "refunds", Handler: "book"}, 15},
		"rare of a topic":     {operate.Filter{Topic: "orders", Tenant: "blue"}, 0},
		"handler not there":   {operate.Filter{Handler: "none"}, 0},
		"tenant not there":    {operate.Filter{Tenant: "none"}, 0},
		"topic not there":     {operate.Filter{Topic: "none"}, 0},
		"another reason":      {operate.Filter{Tenant: "blue", Reason: "permanent"}, 0},
		"and one ID of many":  {operate.Filter{Tenant: "blue", IDs: []uuid.UUID{uuid.New()}}, 0},
		"handlers of another": {operate.Filter{Handler: "ship", Topic: "orders"}, 0},
	} {
		plans.Reset()
		var found []operate.Listed
		for next := operate.Cursor(""); len(found) == 0 || next != ""; {
			page, after, err := inbox.Messages(t.Context(), operate.Listing{Status: operate.StatusDead, Filter: test.filter,
				Limit: 20, After: next})
			require.NoError(t, err, name)
			if found, next = append(found, page...), after; len(page) == 0 {
				break
			}
		}
		require.Len(t, found, test.want, name)
		require.False(t, strings.Contains(plans.String(), back), name)
		require.False(t, strings.Contains(plans.String(), "Seq Scan"), name)
	}
	plans.Reset()
	preview, err := inbox.PreviewJob(t.Context(), operate.JobDiscard, operate.Filter{Tenant: "blue"}, "")
	require.NoError(t, err)
	require.Equal(t, 30, preview.Messages)
	require.False(t, preview.More)
	require.False(t, strings.Contains(plans.String(), back))
}

// What is frequent is read back from the newest, and no further than a page needs.
func TestFrequentDeadLettersAreReadBackFromTheNewest(t *testing.T) {
	w := newWard(t)
	rareLetters(w)
	var plans strings.Builder
	store, err := dedup.Attach(t.Context(), deduptest.Explained(t, w.dsn, &plans), dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	for _, f := range []operate.Filter{{Handler: "book"}, {Topic: "orders"}, {Topic: "orders", Handler: "book"}} {
		plans.Reset()
		_, next, err := operate.Of(store).Messages(t.Context(), operate.Listing{Status: operate.StatusDead, Filter: f, Limit: 20})
		require.NoError(t, err)
		require.NotEmpty(t, next)
		require.True(t, strings.Contains(plans.String(), back), plans.String())
		require.False(t, strings.Contains(plans.String(), "Seq Scan on dead_letters"), plans.String())
	}
}
