package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// relayed has an outbox of which all is known: seven messages are sent, two are dead, and of the topic sick one has
// failed, with two others of its key behind it. Two of the topic later wait, one of them for an hour, and one is not to
// be sent yet. It gives what the relay did.
func relayed(t *testing.T, db *deduptest.DB) func() handlers.Totals {
	t.Helper()
	send := func(err error) outbox.Func { return func(context.Context, dedup.Message) error { return err } }
	retry := handlers.Retry{Base: time.Hour, Cap: time.Hour, MaxAttempts: 5}
	r, err := outbox.New(t.Context(), outbox.Config{Pool: deduptest.OpenPool(t, db.DSN, nil),
		Logger: slog.New(slog.DiscardHandler), MeterProvider: metricnoop.NewMeterProvider(),
		Destinations: []outbox.Destination{
			{Name: "events", Topics: []string{"sent"}, Sender: send(nil)},
			{Name: "crm", Topics: []string{"sick"}, Sender: send(errors.New("away")), Retry: retry},
			{Name: "mail", Topics: []string{"dead"}, Sender: send(handlers.Permanent(errors.New("no such mailbox")))},
		}})
	require.NoError(t, err)
	before := r.Processor().Totals()
	add := func(topic string, n int, key string, notBefore time.Time) {
		for i := range n {
			_, err := new(outbox.Writer).Add(t.Context(), db.Pool, outbox.Message{Topic: topic, NotBefore: notBefore,
				Key: []byte(key), Value: fmt.Append(nil, i)})
			require.NoError(t, err)
		}
	}
	add("sent", 7, "k", time.Time{})
	add("sick", 3, "k", time.Time{})
	add("dead", 2, "k", time.Time{})
	during(r.Run, func() {
		require.Eventually(t, func() bool {
			var left int
			err := db.Pool.QueryRow(t.Context(), `select count(*) from firstseen.outbox`).Scan(&left)
			return err == nil && left == 0
		}, 3*time.Minute, 10*time.Millisecond)
	})
	add("later", 2, "k", time.Time{})
	add("later", 1, "k", time.Now().Add(time.Hour))
	_, err = db.Pool.Exec(t.Context(),
		`update firstseen.outbox set added_at = now() - interval '1 hour' where payload = '0'`)
	require.NoError(t, err)
	var looked atomic.Bool
	return func() handlers.Totals { // a service's first look is before all of it
		if !looked.Swap(true) {
			return before
		}
		return r.Processor().Totals()
	}
}
