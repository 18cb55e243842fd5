package ingress_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/twins"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
)

// Every fourth key comes by Kafka as well, while its clients send it. Handlers fail now and then.
func TestIngressKilledAgainAndAgainMakesEachMessageOnce(t *testing.T) {
	l := twins.New(t, twins.Config{Swallow: "COMMIT", Kills: deduptest.Kills(t, 3), Child: ingressChild,
		Tables:  `create table effects (handler text, message_id uuid, value bytea)`,
		Request: postKey, Read: messageID})
	service, err := open(t.Context(), l.DSN())
	require.NoError(t, err)
	defer service.pool.Close()
	kafka := partition{t: t, service: service}
	told := l.Run(func(key string) {
		if n, _ := strconv.Atoi(key[1:]); n%4 == 0 {
			kafka.bring(key)
		}
	})
	service.drain(t)

	var key string
	var id uuid.UUID
	effects := map[string]string{}
	l.Each(`select convert_from(value, 'UTF8')::jsonb ->> 'what', message_id from effects`, []any{&key, &id}, func() {
		require.NotContains(t, effects, key, "it took effect twice")
		effects[key] = id.String()
	})
	require.Equal(t, told, effects)
	for what, sql := range map[string]string{
		"a message is not done": `select from firstseen.message_dedup d where not exists (
			select from firstseen.inbox i where i.scope_id = d.scope_id and i.message_id = d.message_id)`,
		"a message without its participants": `select from firstseen.enqueued e where 2 <> (
			select count(*) from firstseen.participants p where p.enqueued_id = e.enqueued_id)`,
		"a message without its one event": `select from firstseen.enqueued e where 1 <> (
			select count(*) from firstseen.audit a where a.message_id = e.message_id and a.action = 'MessageEnqueued')`,
	} {
		l.Each(sql, nil, func() { t.Error(what) })
	}
	var enqueued int
	l.Each(`select count(*) from firstseen.enqueued`, []any{&enqueued}, func() {})
	require.GreaterOrEqual(t, enqueued, len(told)*3/4)
}

func postKey(service, key string) (*http.Request, error) {
	const body = `{"content":{"what":"%s"},"key":"%s","participants":[{"role":"sender","address":"a@x"},{"role":"to","address":"b@x"}]}`
	r, err := http.NewRequest(http.MethodPost, service+"/v1/topics/orders/messages",
		strings.NewReader(fmt.Sprintf(body, key, key[len(key)-1:])))
	if err == nil {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
	}
	return r, err
}

// messageID is what all clients of a key are told alike: what has become of a message may change from one to the next.
func messageID(status int, body []byte) (string, error) {
	var m struct{ ID string }
	if status > http.StatusAccepted || json.Unmarshal(body, &m) != nil || m.ID == "" {
		return "", fmt.Errorf("%d: %s", status, body)
	}
	return m.ID, nil
}

// handling is what handles messages: that of the child, and that of the test.
type handling struct {
	pool      *pgxpool.Pool
	store     *dedup.Store
	processor *handlers.Processor
}

func open(ctx context.Context, dsn string) (*handling, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 16
	dedup.PreparePool(config, 2*time.Second)
	h := &handling{}
	if h.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if h.store, err = dedup.Open(ctx, h.pool, dedup.Config{Inbox: "test", AnswerTimeout: 2 * time.Second}); err != nil {
		return nil, err
	}
	registry := &handlers.Registry{}
	err = registry.Add(handlers.Registration{Name: "book", Topics: []string{"orders"}, Handler: sometimesFailing(effect("book")),
		Retry: handlers.Retry{Base: 10 * time.Millisecond, Cap: 100 * time.Millisecond, MaxAttempts: 1000}})
	if err != nil {
		return nil, err
	}
	h.processor, err = handlers.NewProcessor(handlers.Config{Store: h.store, Handlers: registry,
		LanePoll: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	return h, err
}

// sometimesFailing takes effect, and one time in ten fails after that.
func sometimesFailing(h handlers.BatchHandler) handlers.BatchHandler {
	return handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		if err := h.HandleBatch(ctx, tx, ms); err != nil || rand.IntN(10) > 0 {
			return err
		}
		return errors.New("told to")
	})
}

// drain works on what is parked until nothing is.
func (h *handling) drain(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	working.Go(func() { h.processor.RunLanes(ctx) })
	deduptest.UntilDone(t, 2*time.Minute, "parked messages do not drain", func() (string, bool) {
		n, err := h.unfinished(ctx)
		return fmt.Sprint(n, err), err == nil && n == 0
	})
}

func (h *handling) unfinished(ctx context.Context) (n int, err error) {
	return n, h.pool.QueryRow(ctx, `select count(*) from firstseen.parked`).Scan(&n)
}

// partition brings messages by Kafka, as a consumer does.
type partition struct {
	t       testing.TB
	service *handling

	mu       sync.Mutex
	position *dedup.Position
	next     int64
}

// bring tries until Postgres has it.
func (p *partition) bring(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := dedup.Message{Topic: "orders", Offset: p.next, Value: fmt.Appendf(nil, `{"what":"%s"}`, key),
		Headers: keyHeader(key), Key: []byte(key[len(key)-1:])}
	rule, err := identity.NewRule()
	require.NoError(p.t, err)
	m.Identify(rule, uuid.New())
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if err = p.process(m); err == nil {
			p.next++
			return
		}
		if time.Now().After(deadline) {
			p.t.Errorf("%s by Kafka: %v", key, err)
			return
		}
	}
}

func (p *partition) process(m dedup.Message) (err error) {
	ctx := p.t.Context()
	if p.position == nil {
		if p.position, err = p.service.store.Acquire(ctx, "consumer", "orders", 0, "owner"); err != nil {
			p.position = nil
			return err
		}
		if !p.position.Known {
			if err = p.service.store.Reposition(ctx, p.position, 0, uuid.Nil, nil); err != nil {
				return err
			}
		}
	}
	if p.position.Next > m.Offset {
		return nil // it was committed, and only that was not heard
	}
	_, err = p.service.processor.Process(ctx, handlers.Batch{Position: p.position, Next: m.Offset + 1,
		Messages: []dedup.Message{m}})
	if err != nil {
		p.position = nil
	}
	return err
}

// childSpec is the environment variable that makes the test binary an ingress: it holds DSN and address.
const childSpec = "FIRSTSEEN_TEST_CHILD"

func ingressChild(dsn, addr string) child.Spec {
	spec, err := json.Marshal([]string{dsn, addr})
	if err != nil {
		panic(err)
	}
	return child.Spec{Path: os.Args[0], Env: []string{childSpec + "=" + string(spec)}}
}

// runChild is the child's main, which has no end of its own.
func runChild(spec string) int {
	var args [2]string
	err := json.Unmarshal([]byte(spec), &args)
	if err == nil {
		err = serveAt(context.Background(), args[0], args[1])
	}
	fmt.Fprintln(os.Stderr, "child:", err)
	return 1
}

func serveAt(ctx context.Context, dsn, addr string) error {
	service, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	go service.processor.RunLanes(ctx)
	handler, err := ingress.New(ingress.Config{Processor: service.processor, Concurrency: 128, WorkTime: 2 * time.Second,
		Topics: map[string]ingress.Topic{"orders": {}}, Logger: slog.New(slog.DiscardHandler),
		Caller: func(*http.Request) (ingress.Caller, error) { return ingress.Caller{Name: "shop"}, nil }})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}
