package isolate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/firstseen/firstseen/dedup"
)

// Whatever kind of handler fails on whichever messages, at whatever pace: what it did for a message stands once where
// the message is processed, and not at all elsewhere; of each lane all are processed that lie before its first message
// that is parked, and none behind it.
func TestEffectsAreThoseOfTheProcessedMessages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHandler(rt)
		entries := h.entries()
		s := New(h, Turn{Savepoint: &Savepoint{Tx: h}, Traits: &h.traits, Pace: drawPace(rt), Known: drawFindings(rt),
			Log: slog.New(slog.DiscardHandler)})
		require.NoError(rt, s.Handle(t.Context(), s.SetApart(entries)))

		var want []int64
		parked := map[uuid.UUID]bool{}
		for _, e := range entries {
			at := e.Message.Offset
			switch failure := h.bad[at]; {
			case parked[h.Lane(e.Message)]:
				require.Equal(rt, dedup.Parked, e.State, "%d waits", at)
				require.Equal(rt, h.Lane(e.Message), e.Lane)
			case failure == nil:
				require.Equal(rt, dedup.Processed, e.State, "%d", at)
				want = append(want, at)
			default:
				require.Equal(rt, failure.state, e.State, "%d", at)
				parked[h.Lane(e.Message)] = failure.state == dedup.Parked
			}
		}
		require.Equal(rt, want, slices.Concat(h.kept, h.done))
		require.Equal(rt, len(h.told), s.Tries.Sum(), "each failure is told of and counted once")
	})
}

// A handler that names nobody is halved, and is whole again behind the culprit.
func TestOneOfManyIsFoundByHalves(t *testing.T) {
	for at := range int64(64) {
		h := &handler{messages: 64, lanes: 64, bad: map[int64]*failing{at + 1: {dedup.Parked}}}
		s := New(h, Turn{Savepoint: &Savepoint{Tx: h}, Traits: &h.traits, Pace: &Pace{},
			Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, s.Handle(t.Context(), h.entries()))
		require.LessOrEqual(t, h.calls, 1+7+4, "all, halves down to one, and the others by 16")
	}
}

// What was tried before a transaction was lost is not tried again.
func TestMessageThatCostATransactionIsNotTriedAgain(t *testing.T) {
	h := &handler{messages: 4, lanes: 4, costs: 2}
	var entries []*dedup.Entry
	err := Run(t.Context(), h.messages, func(context.Context, error) bool { return false }, func(f *Findings) error {
		h.kept, h.done, entries = nil, nil, h.entries()
		s := New(h, Turn{Savepoint: &Savepoint{Tx: h}, Traits: &h.traits, Pace: &Pace{}, Known: f,
			Log: slog.New(slog.DiscardHandler)})
		return s.Handle(t.Context(), entries)
	})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3, 4}, slices.Concat(h.kept, h.done))
	require.Equal(t, dedup.Parked, entries[1].State)
	require.Equal(t, 2, h.tried[2], "with the others, and by itself to find out that it was it")
}

// A handler that has failed on a message of its time limit names none: each is set apart.
func TestMessagesOfACallThatTookAllOfItsTimeAreSetApart(t *testing.T) {
	h := &handler{messages: 3, lanes: 3, slow: true}
	s := New(h, Turn{Savepoint: &Savepoint{Tx: h}, Traits: &h.traits, Pace: &Pace{}, Log: slog.New(slog.DiscardHandler)})
	err := s.Handle(t.Context(), h.entries())
	var lost *LostError
	require.ErrorAs(t, err, &lost)

	known := &Findings{apart: map[Message]bool{}}
	require.NoError(t, known.add(t.Context(), err, nil))
	entries := h.entries()
	require.Empty(t, New(h, Turn{Savepoint: &Savepoint{Tx: h}, Traits: &h.traits, Known: known}).SetApart(entries))
	for _, e := range entries {
		require.True(t, e.Alone)
		require.Equal(t, dedup.Parked, e.State)
	}
}

type failing struct {
	state dedup.State
}

func (f *failing) Error() string { return "bad" }

// handler is one without Postgres: it, and the transaction.
type handler struct {
	traits   Traits
	messages int
	lanes    int
	bad      map[int64]*failing
	costs    int64 // the message that costs the transaction; 0: none
	slow     bool

	done, kept []int64 // since the savepoint, and before it
	lost       bool
	told       []int64
	tried      map[int64]int
	calls      int
}

func drawHandler(rt *rapid.T) *handler {
	h := &handler{messages: rapid.IntRange(0, 60).Draw(rt, "messages"), lanes: rapid.IntRange(1, 20).Draw(rt, "lanes"),
		bad: map[int64]*failing{}}
	kind := rapid.SampledFrom([]string{"each", "queue", "batch"}).Draw(rt, "kind")
	h.traits.Each, h.traits.Queue = kind == "each", kind == "queue"
	if rapid.Bool().Draw(rt, "singly") {
		h.traits.Singly.Store(true)
	}
	for _, at := range rapid.SliceOfN(rapid.IntRange(1, max(1, h.messages)), 0, 12).Draw(rt, "bad") {
		h.bad[int64(at)] = &failing{rapid.SampledFrom([]dedup.State{dedup.Parked, dedup.Dead}).Draw(rt, "state")}
	}
	return h
}

func drawPace(rt *rapid.T) *Pace {
	p := &Pace{}
	for _, behind := range rapid.SliceOfN(rapid.IntRange(0, 30), 0, 3).Draw(rt, "pace") {
		p.Failed(behind)
	}
	return p
}

func drawFindings(rt *rapid.T) *Findings {
	return rapid.SampledFrom([]*Findings{nil, {alone: true}, {deferred: true}, {alone: true, deferred: true}}).
		Draw(rt, "known")
}

func (h *handler) entries() []*dedup.Entry {
	var entries []*dedup.Entry
	for i := range h.messages {
		entries = append(entries, &dedup.Entry{Message: &dedup.Message{Offset: int64(i + 1), ID: number(i + 1)}})
	}
	return entries
}

func number(n int) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(strconv.Itoa(n))) }

var errLost = errors.New("the transaction is gone")

func (h *handler) Call(ctx context.Context, undo bool, stretches [][]*dedup.Entry) (kept int, err error) {
	h.calls++
	if undo {
		h.done = nil
	}
	if h.tried == nil {
		h.tried = map[int64]int{}
	}
	for _, entries := range stretches {
		for _, e := range entries {
			at := e.Message.Offset
			h.tried[at]++
			if at == h.costs {
				h.lost = true
				return kept, errLost
			}
			if h.bad[at] != nil {
				return kept, &named{at, h.bad[at]}
			}
			h.done = append(h.done, at)
		}
		if h.slow {
			return 0, context.DeadlineExceeded
		}
		if h.traits.Queue {
			_ = h.Keep(ctx)
			kept += len(entries)
		}
	}
	return kept, nil
}

type named struct {
	at  int64
	err error
}

func (n *named) Error() string { return n.err.Error() }

func (h *handler) Meaning(_ context.Context, err error) (Kind, error) {
	if errors.Is(err, context.DeadlineExceeded) {
		return OfTime, err
	}
	return OfMessage, err
}

func (h *handler) IsAbout(err error, m *dedup.Message) bool {
	var n *named
	return (h.traits.Each || h.traits.Queue) && errors.As(err, &n) && n.at == m.Offset
}

func (h *handler) Lane(m *dedup.Message) uuid.UUID { return number(int(m.Offset) % h.lanes) }

func (h *handler) Decide(e *dedup.Entry, _ error) {
	e.State, e.Reason = dedup.Dead, "failed"
	if bad := h.bad[e.Message.Offset]; bad == nil || bad.state == dedup.Parked {
		e.Park(0)
	}
}

func (h *handler) PutOff(e *dedup.Entry, _ error) { e.Park(0) }

func (h *handler) Outage(_ []Message, _ bool, err error) (error, bool) { return err, false }

func (h *handler) Tell(_ context.Context, e *dedup.Entry, _ error) {
	h.told = append(h.told, e.Message.Offset)
}

func (h *handler) Keep(context.Context) error {
	h.kept, h.done = append(h.kept, h.done...), nil
	return nil
}

func (h *handler) Undo(context.Context) error {
	h.done = nil
	return nil
}

func (h *handler) DropTemp(context.Context) error      { return nil }
func (h *handler) CheckDeferred(context.Context) error { return nil }
func (h *handler) Check() error                        { return nil }

func (h *handler) Lost() bool {
	defer func() { h.lost = false }()
	return h.lost
}
