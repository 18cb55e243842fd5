package outbox_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// hooked is a receiver of webhooks.
type hooked struct {
	mu     sync.Mutex
	status int // to answer with
	got    []*http.Request
	bodies []string
}

func (h *hooked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if h.status != 0 {
		w.WriteHeader(h.status)
		return
	}
	h.got, h.bodies = append(h.got, r), append(h.bodies, string(body))
}

func (h *hooked) answers(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func (h *hooked) received() ([]*http.Request, []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got), slices.Clone(h.bodies)
}

// hook is a relay's config whose destination is h.
func (p *place) hook(h *hooked) outbox.Config {
	server := httptest.NewServer(h)
	p.t.Cleanup(server.Close)
	webhook, err := handlers.NewWebhook(handlers.WebhookConfig{URL: server.URL, AllowPrivate: true,
		Secrets: []string{"whsec_" + strings.Repeat("A", 32)}})
	require.NoError(p.t, err)
	cfg := quick(p.t, p.DSN, &deduptest.Log{}, nil, often)
	cfg.Destinations = []outbox.Destination{{Name: "hook", Topics: []string{"t"}, Detached: webhook, Retry: often}}
	return cfg
}

func TestMessagesArePostedByTheWebhookInTheOrderOfTheirKeys(t *testing.T) {
	p, h := newPlace(t), &hooked{}
	const n, keys = 200, 10
	added := p.add(append(numbered(n, keys), outbox.Message{Topic: "t", Tenant: "acme", IdempotencyKey: "order 17",
		Headers: []dedup.Header{{Key: "content-type", Value: []byte("text/plain")}}, Value: []byte("last")})...)
	p.relay(p.hook(h))
	p.settled()
	got, bodies := h.received()
	require.Len(t, got, n+1)
	last := slices.Index(bodies, "last")
	id := added[n].ID.String()
	want := map[string]string{"Webhook-Id": id, "Idempotency-Key": id, "Content-Type": "text/plain",
		"X-Firstseen-Tenant": "acme", "X-Firstseen-Raw-Id": "order%2017", "X-Firstseen-Topic": "t"}
	for name, value := range want {
		require.Equal(t, value, got[last].Header.Get(name), name)
	}
	require.Contains(t, got[last].Header.Get("Webhook-Signature"), "v1,")
	for k := range keys {
		var values []string
		for i := k; i < n; i += keys {
			values = append(values, string(numbered(n, keys)[i].Value))
		}
		require.Equal(t, values, slices.DeleteFunc(slices.Clone(bodies), func(b string) bool {
			return !slices.Contains(values, b)
		}), "key %d", k)
	}
	require.Equal(t, n+1, p.count(`select count(*) from firstseen.inbox`))
}

func TestWebhooksAnswersDecideWhetherAMessageIsDeadOrWaits(t *testing.T) {
	p, h := newPlace(t), &hooked{status: http.StatusTooManyRequests}
	p.relay(p.hook(h))
	p.add(outbox.Message{Topic: "t", Value: []byte("waits")})
	p.eventually("it is not tried", func() bool {
		return p.count(`select count(*) from firstseen.parked where error like '%429%' and attempts = 0`) == 1
	})
	h.answers(0)
	p.eventually("it is not sent", func() bool { _, bodies := h.received(); return len(bodies) == 1 })
	p.settled()
	h.answers(http.StatusGone)
	p.add(outbox.Message{Topic: "t"})
	p.settled()
	require.Equal(t, 1, p.count(`select count(*) from firstseen.dead_letters where reason = 'permanent' and error like '%410%'`))
}

// What a webhook can't keep up with stays in the outbox.
func TestNoMoreIsParkedForAWebhookThanMayBe(t *testing.T) {
	p, h := newPlace(t), &hooked{status: http.StatusInternalServerError}
	cfg := p.hook(h)
	cfg.Batch = 10
	cfg.Destinations[0].MaxParked = 20
	cfg.Destinations[0].Retry = handlers.Retry{Base: time.Hour, Cap: time.Hour}
	for range 40 {
		p.add(numbered(50, 1)...)
	}
	p.relay(cfg)
	p.eventually("nothing is parked", func() bool { return p.count(`select count(*) from firstseen.parked`) > 20 })
	time.Sleep(200 * time.Millisecond)
	require.LessOrEqual(t, p.count(`select count(*) from firstseen.parked`), 2*20+10)
	require.Greater(t, p.rows(), 1900)
}

func TestLogAsADestinationTellsOfMessagesAndNotWhatTheyHold(t *testing.T) {
	p, log := newPlace(t), &deduptest.Log{}
	added := p.add(outbox.Message{Topic: "t", Key: []byte("secret"), Value: []byte("secret")})
	p.relay(quick(t, p.DSN, &deduptest.Log{}, map[string]handlers.Sender{
		"t": outbox.Log(slog.New(slog.NewTextHandler(log, nil)))}, often))
	p.settled()
	require.Contains(t, log.String(), "topic=t message_id="+added[0].ID.String())
	require.NotContains(t, log.String(), "secret")
}

func TestTopicHasOneDestination(t *testing.T) {
	p := newPlace(t)
	cfg := quick(t, p.DSN, &deduptest.Log{}, nil, often)
	cfg.Destinations = []outbox.Destination{{Name: "a", Topics: []string{"t"}, Sender: outbox.Log(slog.Default())},
		{Name: "b", Topics: []string{"u", "t"}, Sender: outbox.Log(slog.Default())}, {Name: "c", Topics: []string{"v"}}}
	_, err := outbox.New(t.Context(), cfg)
	require.ErrorContains(t, err, "destination b: another one has topic t too")
	require.ErrorContains(t, err, "destination c: either a sender or a detached one is required")
}

// One destination hangs, and another is sent to.
func TestDestinationThatHangsHoldsUpNoOther(t *testing.T) {
	p, to := newPlace(t), &target{}
	release := make(chan struct{})
	hangs := outbox.Func(func(ctx context.Context, _ dedup.Message) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	p.add(outbox.Message{Topic: "slow"}, outbox.Message{Topic: "slow"}, outbox.Message{Topic: "slow"})
	cfg := quick(t, p.DSN, &deduptest.Log{}, map[string]handlers.Sender{"slow": hangs, "t": outbox.Func(to.send)}, often)
	cfg.SendTimeout, cfg.DrainTimeout = time.Hour, 10*time.Millisecond
	p.relay(cfg)
	for range 5 {
		n := to.count()
		p.add(numbered(20, 20)...)
		p.eventually("it is held up", func() bool { return to.count() == n+20 })
	}
	p.eventually("what was sent stays", func() bool { return p.rows() == 3 })
	close(release)
	p.settled()
}

func TestWaitingOfTheOutboxIsShownAsHolds(t *testing.T) {
	p, to := newPlace(t), &target{}
	p.exec(`select firstseen.pause('outbox', 'handler', 'to t', -1, 'me', 'to see')`)
	p.add(outbox.Message{Topic: "nobody's"}, outbox.Message{Topic: "t"})
	p.exec(`update firstseen.outbox set added_at = now() - interval '2 minutes'`)
	p.add(outbox.Message{Topic: "just added"})
	to.fails(func(dedup.Message) error { return handlers.Unavailable(errors.New("it is down")) })
	cfg := quick(t, p.DSN, &deduptest.Log{}, map[string]handlers.Sender{"t": outbox.Func(to.send)}, often)
	cfg.Holds = holds.New(cfg.Logger)
	_, stop := p.relay(cfg)
	shown := func(subject, code, reason string) func() bool {
		return func() bool {
			return slices.ContainsFunc(cfg.Holds.List(), func(h holds.Hold) bool {
				return h.String() == subject && h.Code == code && strings.Contains(h.Reason, reason)
			})
		}
	}
	p.eventually("no sender", shown("topic nobody's", holds.NoSender, "no destination"))
	p.eventually("paused", shown("handler to t", holds.Paused, "paused by me: to see"))
	require.False(t, shown("topic just added", holds.NoSender, "")(), "another relay may be about to send it")
	p.exec(`select firstseen.resume('outbox', 'handler', 'to t', -1, 'me', 'seen')`)
	p.add(numbered(20, 20)...)
	p.eventually("away", shown("handler to t", holds.Away, "it is down"))
	p.eventually("paused no more", func() bool { return !shown("handler to t", holds.Paused, "")() })
	to.fails(nil)
	p.eventually("it is sent", func() bool { return to.count() == 21 })
	p.eventually("they end", func() bool { return len(cfg.Holds.List()) == 1 })
	stop()
	require.Empty(t, cfg.Holds.List())
}

func TestBytesOfMessagesAreTakenFromTheAccountAndGivenBack(t *testing.T) {
	p := newPlace(t)
	const limit = 4 << 20
	account := memory.New(limit)
	var most atomic.Int64
	send := outbox.Func(func(context.Context, dedup.Message) error {
		most.Store(max(most.Load(), int64(account.Used())))
		return nil
	})
	cfg := quick(t, p.DSN, &deduptest.Log{}, map[string]handlers.Sender{"t": send}, often)
	cfg.Memory = account
	large := make([]byte, 100<<10)
	for i := range 100 {
		p.add(outbox.Message{Topic: "t", Key: []byte{byte(i)}, Value: large})
	}
	_, stop := p.relay(cfg)
	p.settled()
	require.GreaterOrEqual(t, most.Load(), int64(len(large)))
	require.LessOrEqual(t, most.Load(), int64(2*(limit/8)), "each of two workers takes up to an eighth")
	p.add(outbox.Message{Topic: "t", Value: make([]byte, 3*limit)}) // larger than all of it
	p.settled()
	require.GreaterOrEqual(t, most.Load(), int64(3*limit))
	stop()
	require.Zero(t, account.Used())
	require.Equal(t, 101, p.count(`select count(*) from firstseen.inbox`))
}

func TestMessagesStayInTheOutboxWhileThereIsNoMemoryForThem(t *testing.T) {
	p, to := newPlace(t), &target{}
	cfg := quick(t, p.DSN, &deduptest.Log{}, map[string]handlers.Sender{"t": outbox.Func(to.send)}, often)
	cfg.Memory, cfg.Holds = memory.New(1<<20), holds.New(cfg.Logger)
	cfg.Memory.Add(1 << 20)
	p.add(numbered(20, 5)...)
	p.relay(cfg)
	p.eventually("it is not shown", func() bool {
		return slices.ContainsFunc(cfg.Holds.List(), func(h holds.Hold) bool { return h.Code == holds.Memory })
	})
	require.Equal(t, 20, p.rows())
	cfg.Memory.Give(1 << 20)
	p.settled()
	to.requireInOrder(t, 20, 5)
}
