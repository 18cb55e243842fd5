package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// rig is a circuit with a clock that the test moves.
type rig struct {
	*circuit
	now time.Time
	log bytes.Buffer
}

func newRig() *rig {
	r := &rig{now: time.Now()}
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	r.circuit = newCircuit(&registered{name: "h", detached: DetachedFunc(nil)}, log, holds.New(log))
	return r
}

// message makes a call for message n, with an error or without. It says what an attempt is counted by.
func (r *rig) message(n byte, err error) error {
	call := &delivery{message: &dedup.Message{ID: uuid.UUID{n}}, err: err, tried: true, probe: r.starts()}
	return r.ended(r.now, call)
}

func (r *rig) states(what string) int { return strings.Count(r.log.String(), what) }

// errFault may be the message's or the receiver's, and is the message's until there are many; errAway is the
// receiver's unless siblings get through.
var (
	errFault = &StatusError{Code: 500}
	errAway  = &isolate.AwayError{Err: &StatusError{Code: 503}}
)

func counted(err error) bool { return !errors.As(err, new(*unavailableError)) }

func TestCircuitOpensWhenMostMessagesFailAndClosesByOneCall(t *testing.T) {
	r := newRig()
	for n := range byte(9) {
		require.True(t, counted(r.message(n, errFault)))
	}
	require.False(t, counted(r.message(9, errFault)), "the one that opens it is no attempt")
	require.Zero(t, r.allows(r.now, 8))
	require.False(t, counted(r.ended(r.now, &delivery{message: &dedup.Message{}, err: errFault, tried: true})),
		"of a call from before")

	for pauses := range 8 {
		ceiling := min(detachedPause<<pauses, detachedMaxPause)
		pause := r.until.Sub(r.now)
		require.GreaterOrEqual(t, pause, ceiling/2)
		require.LessOrEqual(t, pause, ceiling)
		require.Zero(t, r.allows(r.now.Add(pause-1), 8))
		r.now = r.now.Add(pause)
		require.Equal(t, 1, r.allows(r.now, 8))
		require.Equal(t, 0, r.allows(r.now, 0))
		err := r.message(1, errFault)
		require.False(t, counted(err))
		_, wait := Verdict(err)
		require.Greater(t, r.now.Add(wait), r.until, "another message has the next turn")
	}
	r.now = r.until
	require.Equal(t, 1, r.allows(r.now, 8))
	require.NoError(t, r.message(2, nil))
	require.Equal(t, 8, r.allows(r.now, 8))
	require.True(t, counted(r.message(3, errFault)), "it begins anew")
	require.Equal(t, [2]int{1, 1}, [2]int{r.states("waiting: calls fail"), r.states("goes on again")})
}

func TestCircuitStaysClosed(t *testing.T) {
	for name, calls := range map[string]func(r *rig){
		"one bad message among others": func(r *rig) {
			for n := range byte(30) {
				require.True(t, counted(r.message(0, errFault)))
				require.NoError(t, r.message(1+n%3, nil))
			}
		},
		"one bad message alone": func(r *rig) {
			for range 30 {
				require.True(t, counted(r.message(0, errFault)))
			}
		},
		"fewer than half": func(r *rig) {
			for n := range byte(100) {
				if n%5 < 3 {
					require.NoError(t, r.message(n, nil))
				} else {
					require.True(t, counted(r.message(n, errFault)))
				}
			}
		},
		"the messages' own faults": func(r *rig) {
			for n := range byte(100) {
				require.Error(t, r.message(n, Permanent(&StatusError{Code: 410})))
			}
		},
		"too few in the window": func(r *rig) {
			for n := range byte(100) {
				require.True(t, counted(r.message(n, errFault)))
				r.now = r.now.Add(circuitWindow/8 + 1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			calls(r)
			require.Equal(t, closed, r.state)
			require.Empty(t, r.log.String())
		})
	}
}

func TestProbeThatWasNotMadeTellsNothing(t *testing.T) {
	r := newRig()
	r.open(r.now, errFault)
	r.now = r.until
	require.True(t, r.starts())
	require.Zero(t, r.allows(r.now, 8))
	require.NoError(t, r.ended(r.now, &delivery{message: &dedup.Message{}, probe: true}))
	require.Equal(t, 1, r.allows(r.now, 8))
}

func TestWhatTooManyOfAreAnOutage(t *testing.T) {
	for err, want := range map[error]bool{
		&StatusError{Code: 500}: true, errAway: true, &StatusError{Code: 409}: false,
		Unavailable(errors.New("x")): true,
		ErrHandlerTimeout:            true, fmt.Errorf("x: %w", ErrAbandoned): true,
		errors.New("x"): false, &PanicError{}: false,
	} {
		require.Equal(t, want, isFault(err), "%v", err)
	}
	require.False(t, isFault(nil))
}

func TestAnOutageIsNoAttemptWhateverTheTraffic(t *testing.T) {
	r := newRig()
	for range 30 {
		require.False(t, counted(r.message(0, errAway)), "alone")
		r.now = r.now.Add(time.Minute)
	}
	require.Equal(t, holds.Away, r.hold.Code())
	require.Equal(t, holds.Subject{Kind: holds.HandlerKind, Name: "h"}, r.hold.Hold().Subject)
	require.Equal(t, closed, r.state, "one message is no reason to pause others")
	require.NoError(t, r.message(1, nil))
	require.Nil(t, r.hold.Hold())
	require.Equal(t, [2]int{1, 1}, [2]int{r.states("waiting: calls fail"), r.states("goes on again")})
}

func TestAMessageThatLooksLikeAnOutageCountsAttemptsWhileItsSiblingsPass(t *testing.T) {
	r := newRig()
	require.False(t, counted(r.message(0, errAway)), "at first nobody knows")
	attempts := 0
	for n := range byte(9) {
		require.NoError(t, r.message(1+n, nil))
		for range 3 {
			if counted(r.message(0, errAway)) {
				attempts++
			}
		}
	}
	require.Equal(t, 9, attempts, "one each time that another has passed")
	require.Equal(t, closed, r.state)

	require.NoError(t, r.message(99, nil))
	require.True(t, counted(r.message(0, errAway)))
	require.False(t, counted(r.message(100, errAway)))
	for range 3 {
		require.NoError(t, r.message(101, nil))
		require.False(t, counted(r.message(0, errAway)), "two fail and one has passed")
		require.NoError(t, r.message(102, nil))
		require.True(t, counted(r.message(0, errAway)))
		require.True(t, counted(r.message(100, errAway)))
	}
	require.NoError(t, r.message(103, nil))
	require.NoError(t, r.message(104, nil))
	require.False(t, counted(r.message(0, Unavailable(errAway))), "what is marked so never counts")
}

func TestDifferentMessagesThatFailInARowOpenTheCircuit(t *testing.T) {
	r := newRig()
	for n := range byte(2) {
		require.False(t, counted(r.message(n, errAway)))
		require.False(t, counted(r.message(n, errAway)))
	}
	require.Equal(t, closed, r.state)
	require.False(t, counted(r.message(2, errAway)))
	require.Equal(t, open, r.state)
	require.Equal(t, holds.Away, r.hold.Code())
}

func TestCircuitSparesAttemptsUntilTheDependencyIsBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var log bytes.Buffer
	var away, calls atomic.Int32
	away.Store(1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		if away.Load() == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	hook, err := NewWebhook(WebhookConfig{URL: server.URL, AllowPrivate: true})
	require.NoError(t, err)
	p := b.processor(func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) },
		Registration{Name: "hook", Detached: hook, Retry: Retry{Base: 1, Cap: 1, MaxAttempts: 3}})
	var texts []string
	for i := range 30 {
		texts = append(texts, fmt.Sprintf("k%d=v", i))
	}
	d := newDispatcher(p, p.cfg.Handlers.all[0])
	d.circuit.pause = 40 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.run(ctx) }()
	b.process(p, b.messages(texts...))
	require.Eventually(t, func() bool { return calls.Load() >= 6 }, 3*time.Minute, time.Millisecond) // several pauses
	away.Store(0)
	b.delivered(30)
	cancel()
	<-done
	require.Zero(t, b.count(`select count(*) from firstseen.dead_letters`))
	require.Zero(t, b.count(`select sum(attempts) from firstseen.inbox`))
	require.Equal(t, 1, strings.Count(log.String(), "waiting: calls fail"))
	require.Equal(t, 1, strings.Count(log.String(), "goes on again"))
}
