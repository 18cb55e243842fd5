package operate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
)

// tells requires that an explanation says all of that, in this order.
func tells(t *testing.T, e operate.Explanation, err error, parts ...string) {
	t.Helper()
	require.NoError(t, err)
	text := strings.Join(e.Sentences, "\n")
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		require.True(t, ok, "%q is missing, or too early, in:\n%s", part, text)
		rest = after
	}
}

func TestExplainTellsTheLifeOfAMessage(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	m.RawID = "order 7"
	id := m.ID.String()
	explain := func() (operate.Explanation, error) { return w.inbox.ExplainID(t.Context(), m.ID) }
	e, err := explain()
	tells(t, e, err, id+" was never seen")
	require.Empty(t, e.Seen)

	w.failFirst(m)
	behind := message(1, "k")
	require.Equal(t, 1, w.process(behind).Parked)
	e, err = explain()
	tells(t, e, err, "Handler book of inbox orders-inbox saw it first at",
		`orders/0@0, under the ID "order 7"`, "waiting in its lane since", "after 1 failed attempt",
		"has failed 1 time (failed: ", errSick.Error(), "tried next at")
	require.Equal(t, 1, e.Seen[0].Lane.Head.Attempts)
	e, err = w.inbox.ExplainID(t.Context(), behind.ID)
	tells(t, e, err, "orders/0@1", "There is 1 unfinished message before it, of which the first is message "+id,
		"That one has failed 1 time")
	require.Equal(t, 1, e.Seen[0].Lane.Ahead)
	w.exec(`update firstseen.lanes set due_at = now() - interval '1 h'`)
	e, err = explain()
	tells(t, e, err, "is a process running that has handler book?")

	w.settle()
	e, err = explain()
	tells(t, e, err, "given up at", "attempts_exhausted: ", errSick.Error(), "until it is redriven or discarded")

	w.handler.mend()
	w.redrive(operate.Filter{})
	w.settle()
	e, err = explain()
	tells(t, e, err, "It was handled at", "redrive by "+by.Actor+": "+by.Why)
	require.Equal(t, dedup.Processed, e.Seen[0].Stored.State)

	w.exec(`delete from firstseen.inbox`)
	e, err = explain()
	tells(t, e, err, "kept no more: it was handled")
}

func TestExplainTellsWhatWasDoneAtOnceAndWhatCameAgain(t *testing.T) {
	w := newWard(t)
	ms := copies(identity.FingerprintBytes)
	w.process(ms...)
	e, err := w.inbox.ExplainID(t.Context(), ms[0].ID)
	tells(t, e, err, "It was handled in that transaction.",
		"1 copy with another content came later and was not handled", "from orders/0@1")
	require.NotContains(t, strings.Join(e.Sentences, " "), "failed")
}

func TestExplainTellsWhoDiscardedAMessage(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	w.kill(m)
	_, err := w.inbox.Discard(t.Context(), operate.Filter{}, by)
	require.NoError(t, err)
	e, err := w.inbox.ExplainID(t.Context(), m.ID)
	tells(t, e, err, "it was discarded", "discard by "+by.Actor+": "+by.Why)
}

func TestExplainLooksIntoAllScopes(t *testing.T) {
	w := newWard(t)
	m := message(0, "k")
	m.Tenant = "blue"
	w.processWith(w.newProcessor("ship"), m)
	other, err := dedup.Open(t.Context(), w.pool, dedup.Config{Inbox: "another"})
	require.NoError(t, err)
	e, err := operate.Of(other).ExplainID(t.Context(), uuid.New(), m.ID)
	tells(t, e, err, "Handler ship of inbox orders-inbox, for tenant blue, saw it first",
		"Inbox another, which was asked, has not seen it")
	w.process(message(1, "k"))
	e, err = w.inbox.ExplainID(t.Context(), m.ID)
	tells(t, e, err, "Handler ship", "These handlers of inbox orders-inbox have not seen it: book.")
	w.exec(`insert into firstseen.scopes (inbox, handler, tenant) values ('orders-inbox', 'of another topic', '')`)
	e, err = w.inbox.ExplainID(t.Context(), m.ID)
	tells(t, e, err, "These handlers of inbox orders-inbox have not seen it: book.")
}

func TestExplainOfAPlace(t *testing.T) {
	w := newWard(t)
	at := func(offset int64) (operate.Explanation, error) {
		return w.inbox.ExplainPlace(t.Context(), "orders", 0, offset, time.Time{})
	}
	e, err := at(5)
	tells(t, e, err, "No consumer has a position in orders/0")

	ms := copies(identity.FingerprintBytes)
	noID, waiting := message(3, "k"), message(4, "k")
	noID.Refuse(identity.ReasonMissingID, uuid.Nil)
	w.process(append(ms, noID)...)
	w.failFirst(waiting)

	e, err = at(0)
	tells(t, e, err, "At orders/0@0 lay message "+ms[0].ID.String(), "Consumer group is past it: its position is 5",
		"It was handled")
	require.False(t, e.Place.SearchedFrom.IsZero(), "in the inbox")
	e, err = at(1)
	tells(t, e, err, "At orders/0@1 lay a copy of message "+ms[0].ID.String()+" with another content", "at orders/0@0")
	require.True(t, e.Place.Conflict)
	e, err = at(2)
	tells(t, e, err, "Nothing that is kept came from this offset", "a copy of a message that was seen before")
	require.Empty(t, e.Seen)
	e, err = at(3)
	tells(t, e, err, "lay message "+noID.ID.String(), "given up at", "(missing_id)")
	e, err = at(4)
	tells(t, e, err, "lay message "+waiting.ID.String(), "waiting in its lane")
	require.True(t, e.Place.SearchedFrom.IsZero(), "found without the inbox")
	e, err = at(5)
	tells(t, e, err, "Consumer group is right at it since", "Its owner is host-1, since")
	w.exec(`update firstseen.positions set fruitless = 3`)
	e, err = at(5)
	tells(t, e, err, "the 3rd time without getting on")
	e, err = at(7)
	tells(t, e, err, "Consumer group has not reached it: its position is 5, 2 offsets before it")
}

func TestExplainReadsTheInboxBackOnlyAsFarAsItIsTold(t *testing.T) {
	w := newWard(t)
	w.process(message(0, "k"))
	w.exec(`with old as (update firstseen.inbox set received_at = now() - interval '3 days' returning received_at)
		update firstseen.message_dedup set first_seen_at = old.received_at from old`)
	e, err := w.inbox.ExplainPlace(t.Context(), "orders", 0, 0, time.Time{})
	tells(t, e, err, "Nothing that is kept came from this offset; the inbox was searched back to "+
		time.Now().UTC().AddDate(0, 0, -2).Format("2006-01-02"))
	e, err = w.inbox.ExplainPlace(t.Context(), "orders", 0, 0, time.Now().AddDate(0, 0, -4))
	tells(t, e, err, "At orders/0@0 lay message")
}

// What is older than the inbox's first day is looked for at once: a day at a time two thousand years took minutes.
func TestExplainReadsTheInboxBackToAnyTime(t *testing.T) {
	w := newWard(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	since := time.Date(1, 6, 30, 20, 13, 47, 0, time.UTC)
	e, err := w.inbox.ExplainPlace(ctx, "orders", 0, 0, since)
	tells(t, e, err, "the inbox was searched back to 0001-06-30")
	w.process(message(0, "k"))
	w.exec(`with old as (update firstseen.inbox set received_at = now() - interval '900 years' returning received_at)
		update firstseen.message_dedup set first_seen_at = old.received_at from old`)
	e, err = w.inbox.ExplainPlace(ctx, "orders", 0, 0, since)
	tells(t, e, err, "At orders/0@0 lay message")
}

func TestTextOfAnIDStandsForTheIDThatItsMessageHas(t *testing.T) {
	identify := func(source string, m dedup.Message) uuid.UUID {
		src, err := identity.ParseSource(source)
		require.NoError(t, err)
		rule, err := identity.NewRule(src)
		require.NoError(t, err)
		m.Identify(rule, uuid.Nil)
		require.Empty(t, m.Reason)
		return m.ID
	}
	header := func(name, value string) dedup.Header { return dedup.Header{Key: name, Value: []byte(value)} }
	for _, text := range []string{"order-7", " order-7\n", "urn:uuid:1B4E28BA-2FA1-11D2-883F-0016D3CCA427",
		"{1b4e28ba-2fa1-11d2-883f-0016d3cca427}", "Ümläut"} {
		ids, err := identity.ParseIDs(text)
		require.NoError(t, err)
		require.Equal(t, []uuid.UUID{identify("header:message-id",
			dedup.Message{Headers: []dedup.Header{header("message-id", text)}})}, ids)
	}
	event := identify("cloudevents", dedup.Message{Headers: []dedup.Header{header("ce_source", "/shop"),
		header("ce_id", "a b")}})
	ids, err := identity.ParseIDs("/shop a b")
	require.NoError(t, err)
	require.Contains(t, ids, event)
	for _, wrong := range []string{"", " ", strings.Repeat("x", identity.MaxIDBytes+1), uuid.Nil.String()} {
		_, err := identity.ParseIDs(wrong)
		require.Error(t, err)
	}
}
