package operate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// causes handles messages with a handler that adds some to the outbox for each, by the topics sent, dead and nobody.
func (p *post) causes(ms ...dedup.Message) {
	p.t.Helper()
	store, err := dedup.Open(p.t.Context(), p.Pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(p.t, err)
	var registry handlers.Registry
	require.NoError(p.t, registry.Register("book", handlers.Each(handlers.HandlerFunc(
		func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			var w outbox.Writer
			later := letter("sent", "later of "+string(m.Key))
			later.NotBefore = time.Now().Add(time.Hour)
			_, err := w.AddAll(ctx, tx, []outbox.Message{letter("sent", "of "+string(m.Key)), letter("dead", "x"),
				letter("nobody", "y"), later})
			return err
		})), "orders"))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry, Logger: quiet()})
	require.NoError(p.t, err)
	result, err := processor.Process(p.t.Context(), handlers.Batch{Messages: ms})
	require.NoError(p.t, err)
	require.Equal(p.t, len(ms), result.New)
}

func TestExplainFollowsAMessageThroughTheOutbox(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	m, other := message(0, "k"), message(1, "other")
	p.causes(m, other)
	orders, err := operate.Open(t.Context(), p.Pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	e, err := orders.ExplainID(t.Context(), m.ID)
	tells(t, e, err, "Handler book of inbox orders-inbox saw it first", "It has caused 4 messages of the outbox:",
		", to sent, waits in the outbox since", ", to nobody, waits in the outbox since",
		", to sent, waits in the outbox and is not to be sent before")
	waits := e.Caused[0].Message.ID
	e, err = orders.ExplainID(t.Context(), waits)
	tells(t, e, err, "It waits in the outbox since", "to be sent to sent")
	require.NotContains(t, strings.Join(e.Sentences, "\n"), "never seen")
	require.Empty(t, e.Seen)
	p.exec(`update firstseen.outbox set added_at = now() - interval '1 hour'`)
	e, err = orders.ExplainID(t.Context(), waits)
	tells(t, e, err, "No relay has taken it: is a process running whose outbox has a destination for sent")

	p.relay()
	e, err = orders.ExplainID(t.Context(), m.ID)
	tells(t, e, err, "It has caused 4 messages", waits.String()+", to sent, was sent by destination events at",
		", to dead, was given up by destination mail at", "(permanent: no such mailbox)", ", to nobody, waits in the outbox",
		"is not to be sent before")
	require.Len(t, e.Caused, 4, "none of the other message's")
	require.Zero(t, e.CausedUntil)
	e, err = orders.ExplainID(t.Context(), waits)
	tells(t, e, err, "Destination events of the outbox saw it first at",
		"A handler has added it for message "+m.ID.String(), "It was sent in that transaction.")
	require.NotContains(t, strings.Join(e.Sentences, "\n"), "has not seen it")
	e, err = orders.ExplainID(t.Context(), e.Seen[0].Stored.Message.ID)
	require.NoError(t, err)
	require.Empty(t, e.Caused)
}
