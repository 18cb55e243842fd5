package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

func TestExplainTellsByIDAndByPlace(t *testing.T) {
	o := newOffice(t)
	m := o.add("a/1/2", dedup.Dead, dedup.Message{})
	stdout, _ := o.run(exitOK, "explain", "--id", "a/1/2")
	require.Contains(t, stdout, "Asked for a/1/2, the message "+m.ID.String()+", in inbox orders-inbox.\n"+
		"Handler book of inbox orders-inbox saw it first at")
	require.Contains(t, stdout, "given up at")
	for _, at := range []string{"orders/0/0", "orders/0@0"} {
		stdout, _ = o.run(exitOK, "explain", at)
		require.Contains(t, stdout, "Asked for "+at+", in inbox orders-inbox.\nAt orders/0@0 lay message "+m.ID.String())
	}
	posted := o.add("posted", dedup.Dead, dedup.Message{Partition: -1})
	stdout, _ = o.run(exitOK, "explain", place(&posted))
	require.Contains(t, stdout, "lay message "+posted.ID.String())
	stdout, _ = o.run(exitOK, "explain", "orders/-1@5")
	require.Contains(t, stdout, "Nothing that is kept came from this offset")
	require.NotContains(t, stdout, "No consumer has a position")
	stdout, _ = o.run(exitOK, "explain", "a/1/2")
	require.Contains(t, stdout, "No consumer has a position in a/1")
	stdout, stderr := o.run(exitFailure, "explain", "nobody")
	require.Contains(t, stdout, "was never seen, by any handler of any inbox")
	require.Contains(t, stderr, "message nobody was never seen")

	stdout, _ = o.run(exitOK, "explain", "orders/0/0", "--json")
	var got struct {
		Sentences []string
		Seen      []struct {
			Handler string
			Message struct{ Status, Error string }
		}
		Place struct{ Topic string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, "dead", got.Seen[0].Message.Status)
	require.Contains(t, got.Seen[0].Message.Error, "no such account")
	require.Equal(t, "orders", got.Place.Topic)
	require.NotEmpty(t, got.Sentences)
}

func TestExplainTellsOfAnIdempotencyKeyWhereThereIsNoInbox(t *testing.T) {
	db := deduptest.New(t)
	store, err := idempotency.Open(t.Context(), db.Pool, idempotency.PostgresConfig{})
	require.NoError(t, err)
	_, _, err = store.Claim(t.Context(), idempotency.Entry{KeyHash: idempotency.HashKey("k-1"), Tenant: "acme",
		Route: "POST /orders"}, time.Hour, time.Hour)
	require.NoError(t, err)
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, code := command(t, append([]string{"explain", "--dsn", db.DSN}, args...)...)
		require.Equal(t, want, code, stdout+stderr)
		return stdout, stderr
	}
	stdout, _ := run(exitOK, "--idempotency-key", ` "k-1" `)
	require.Contains(t, stdout, "POST /orders of tenant acme came first at")
	require.NotContains(t, stdout, "k-1")
	stdout, _ = run(exitOK, "--idempotency-key", "k-1", "--tenant", "acme", "--json")
	var got struct {
		Asked    string
		Requests []struct {
			State      string
			Status     *int
			LeaseUntil time.Time `json:"lease_until"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, "running", got.Requests[0].State)
	require.Nil(t, got.Requests[0].Status)
	require.NotZero(t, got.Requests[0].LeaseUntil)
	_, stderr := run(exitFailure, "--idempotency-key", "k-1", "--tenant", "other")
	require.Contains(t, stderr, "no request with this key is known")
	for _, args := range [][]string{{"--idempotency-key", " "}, {"--idempotency-key", `"k`}, {"--idempotency-key", "k", "k"},
		{"k-1", "--tenant", "acme"}, {"k-1", "--topic", "orders"}} {
		run(exitUsage, args...)
	}
}
