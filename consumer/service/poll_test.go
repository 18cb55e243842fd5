package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// during runs f beside something that lasts until its context ends.
func during(run func(context.Context), f func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	f()
	cancel()
	<-done
}

func TestPollAsksInItsIntervalAndKeepsTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &bytes.Buffer{}
		var asked atomic.Int64
		var fails atomic.Bool
		p := &poll[int64]{what: "size", every: time.Minute, limit: time.Second,
			log: slog.New(slog.NewTextHandler(out, nil)),
			ask: func(ctx context.Context) (int64, error) {
				n := asked.Add(1)
				if fails.Load() {
					<-ctx.Done() // it takes for ever, and is ended
					return 0, errors.New("took too long")
				}
				return n, nil
			}}
		during(func(ctx context.Context) { p.run(ctx, make(chan struct{}, 1)) }, func() {
			synctest.Wait()
			first := time.Now()
			fails.Store(true)
			time.Sleep(3*time.Minute + 30*time.Second)
			synctest.Wait()
			answer, at := p.last()
			require.EqualValues(t, 4, asked.Load())
			require.EqualValues(t, 1, answer)
			require.Equal(t, first, at)
			require.Equal(t, 1, strings.Count(out.String(), "a figure for metrics is missing"),
				"an outage is told once")
			fails.Store(false)
			time.Sleep(time.Minute)
			synctest.Wait()
			answer, _ = p.last()
			require.EqualValues(t, 5, answer)
		})
	})
}

func TestPollsThatShareATurnAskOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1)
		var asking, beside atomic.Int64
		ask := func(context.Context) (int, error) {
			beside.Add(asking.Add(1) - 1)
			time.Sleep(time.Second)
			asking.Add(-1)
			return 0, nil
		}
		during(func(ctx context.Context) {
			other := make(chan struct{})
			go func() {
				defer close(other)
				(&poll[int]{every: 3 * time.Second, limit: time.Minute, ask: ask}).run(ctx, turn)
			}()
			(&poll[int]{every: 2 * time.Second, limit: time.Minute, ask: ask}).run(ctx, turn)
			<-other
		}, func() { time.Sleep(time.Minute) })
		require.Zero(t, beside.Load())
	})
}
