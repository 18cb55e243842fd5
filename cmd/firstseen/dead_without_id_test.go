package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

// deliver writes messages whose ID is in the header order-id, which the default does not look at.
func (s *shop) deliver(from, to int) {
	s.t.Helper()
	for i := from; i < to; i++ {
		id := fmt.Appendf(nil, "order-%d", i)
		consumertest.Produce(s.t, s.addr,
			&kgo.Record{Topic: s.topic, Key: id, Headers: []kgo.RecordHeader{{Key: "order-id", Value: id}}})
	}
}

func (s *shop) deadLetters() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.Pool.QueryRow(s.t.Context(), `select count(*) from firstseen.dead_letters`).Scan(&n))
	return n
}

// These are the steps of OPERATIONS.
func TestLettersWithoutAnIDTakeEffectOnceByAReplayAndNotByARedrive(t *testing.T) {
	s := newShop(t, booking)
	s.deliver(0, 20)
	p := start(t, s.config(s.db.DSN), "run")
	eventually(t, func() bool { return s.deadLetters() == 20 })
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())

	for _, args := range [][]string{{"--all", "--dry-run"}, {"--all", "--why", "corrected"},
		{"--reason", "missing_id", "--why", "corrected"}} {
		_, stderr := s.run(exitFailure, append([]string{"dead", "redrive"}, args...)...)
		require.Contains(t, stderr, "20 dead letters without a message ID can't be redriven")
		require.Contains(t, stderr, "replay")
	}
	require.Equal(t, 20, s.deadLetters())
	stdout, _ := s.run(exitOK, "dead", "list", "--reason", "missing_id")
	require.Regexp(t, s.topic+`/0@0 .* looked for header:message-id, then header:id`, stdout)
	stdout, _ = s.run(exitWarning, "doctor", "--only", "ids.missing,dead.waiting")
	require.Contains(t, stdout, "`firstseen replay` the offsets: that handles them under their IDs. "+
		"Then discard the letters; they can't be redriven.")
	require.NotContains(t, stdout, "firstseen dead redrive")

	s.settings = "id: header:order-id,"
	start(t, s.config(s.db.DSN), "run")
	s.runJSON(exitOK, "replay", s.topic, "--from", "earliest")
	require.Equal(t, 20, s.booked())
	s.deliver(0, 21) // the producer's resend, and one behind it
	eventually(t, func() bool { return s.booked() == 21 })
	s.run(exitOK, "dead", "discard", "--topic", s.topic, "--reason", "missing_id", "--why", "replayed with its ID", "--yes")
	require.Zero(t, s.deadLetters())
	s.requireBookedOnce(21)
}
