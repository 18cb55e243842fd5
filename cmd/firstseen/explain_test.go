package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestExplainTellsByIDAndByPlace(t *testing.T) {
	o := newOffice(t)
	m := o.add("a/1/2", dedup.Dead, dedup.Message{})
	stdout, _ := o.run(exitOK, "explain", "--id", "a/1/2")
	require.Contains(t, stdout, "Handler book of inbox orders-inbox saw it first at")
	require.Contains(t, stdout, "given up at")
	for _, place := range []string{"orders/0/0", "orders/0@0"} {
		stdout, _ = o.run(exitOK, "explain", place)
		require.Contains(t, stdout, "At orders/0@0 lay message "+m.ID.String())
	}
	stdout, _ = o.run(exitOK, "explain", "a/1/2")
	require.Contains(t, stdout, "No consumer has a position in a/1")
	stdout, stderr := o.run(exitFailure, "explain", "nobody")
	require.Contains(t, stdout, "was never seen, by any handler of any inbox")
	require.Contains(t, stderr, "was never seen")

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
