package handlers_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// usual makes messages what most producers send: a key, 300 bytes, and a UUID's text as message ID.
func usual(ms []dedup.Message) []dedup.Message {
	for i := range ms {
		m := &ms[i]
		m.Key, m.Value, m.Timestamp = fmt.Append(nil, "key-", i), bytes.Repeat([]byte{byte(i)}, 300), time.Now()
		m.Headers = []dedup.Header{{Key: "message-id", Value: []byte(m.ID.String())}}
	}
	return ms
}

func TestMessagesOfABatchShareTheirAllocations(t *testing.T) {
	const n, runs, topic = 1000, 5, "orders-of-all-the-customers-that-there-are"
	s := newStage(t)
	s.register("idle", handlers.BatchHandlerFunc(func(context.Context, pgx.Tx, []dedup.Message) error { return nil }),
		topic)
	processor, p := s.processor(), s.position(topic)
	process := func(ms []dedup.Message, want handlers.Result) {
		got, err := processor.Process(context.Background(),
			handlers.Batch{Position: p, Next: p.Next + n, Messages: ms})
		if err != nil || got != want {
			t.Fatal(got, err)
		}
	}
	all := usual(messages(p, newIDs((runs+1)*n)...)) // one batch to warm up
	left := all
	fresh := testing.AllocsPerRun(runs, func() { process(left[:n], handlers.Result{New: n}); left = left[n:] }) / n
	copies := testing.AllocsPerRun(runs, func() { process(all[:n], handlers.Result{Duplicates: n}) }) / n
	t.Logf("%.3f allocations a new message, %.3f a duplicate", fresh, copies)
	require.Less(t, fresh, .5)
	require.Less(t, copies, .5)
}
