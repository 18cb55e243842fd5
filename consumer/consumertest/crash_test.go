package consumertest_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/crashtest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// payments are a sample of n payments into three accounts, and what the handlers need.
func payments(n int) crashtest.Config {
	c := crashtest.Config{Schema: `create table accounts (name text primary key, cents bigint not null)`, Faults: 4}
	for i := range n {
		c.Messages = append(c.Messages, crashtest.Message{Topic: "payments", Key: fmt.Appendf(nil, "account-%d", i%3),
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: fmt.Appendf(nil, "p-%d", i)}}})
	}
	return c
}

const add = `insert into accounts values ($1, 5) on conflict (name) do update set cents = accounts.cents + 5`

// adding gives a registration its handler.
type adding func(r *handlers.Registration, pool *pgxpool.Pool, m crashtest.Member) error

// inTransaction does what it does in the transaction that it is given.
func inTransaction(r *handlers.Registration, _ *pgxpool.Pool, m crashtest.Member) error {
	r.Handler = m.Failing(handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		_, err := tx.Exec(ctx, add, string(m.Key))
		return err
	})))
	return nil
}

// beside does it on a connection of its own.
func beside(r *handlers.Registration, pool *pgxpool.Pool, m crashtest.Member) error {
	r.Handler = m.Failing(handlers.Each(handlers.HandlerFunc(func(ctx context.Context, _ pgx.Tx, m dedup.Message) error {
		_, err := pool.Exec(ctx, add, string(m.Key))
		return err
	})))
	return nil
}

// webhook posts to a URL.
func webhook(r *handlers.Registration, _ *pgxpool.Pool, m crashtest.Member) (err error) {
	r.Detached, err = handlers.NewWebhook(handlers.WebhookConfig{URL: m.Webhook("add"), AllowPrivate: true,
		Timeout: crashtest.WebhookTimeout})
	return err
}

// early posts to a URL while its transaction may still be lost.
func early(r *handlers.Registration, pool *pgxpool.Pool, m crashtest.Member) error {
	if err := webhook(r, pool, m); err != nil {
		return err
	}
	hook := r.Detached
	r.Detached = nil
	r.Handler = handlers.Each(handlers.HandlerFunc(func(ctx context.Context, _ pgx.Tx, m dedup.Message) error {
		return hook.Deliver(ctx, m)
	}))
	return nil
}

// consuming is a program with one handler.
func consuming(handler adding) func(context.Context, crashtest.Member) error {
	return func(ctx context.Context, m crashtest.Member) error {
		conf, err := pgxpool.ParseConfig(m.DSN)
		if err != nil {
			return err
		}
		dedup.PreparePool(conf, 0)
		conf.MaxConns = 20
		pool, err := pgxpool.NewWithConfig(ctx, conf)
		if err != nil {
			return err
		}
		defer pool.Close()
		store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "payments"})
		if err != nil {
			return err
		}
		var registry handlers.Registry
		added := handlers.Registration{Name: "add", Topics: []string{"payments"},
			Retry: handlers.Retry{Base: 20 * time.Millisecond, Cap: 100 * time.Millisecond, MaxAttempts: 20}}
		if err := handler(&added, pool, m); err != nil {
			return err
		}
		if err := registry.Add(added); err != nil {
			return err
		}
		processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry,
			LanePoll: 20 * time.Millisecond, AbandonAfter: time.Second})
		if err != nil {
			return err
		}
		return consumer.Run(ctx, consumer.Config{Group: "payments", MaxBatch: m.Batch,
			Connection: consumer.Connection{Brokers: m.Brokers, ClientID: m.ClientID},
			Logger:     slog.New(slog.NewTextHandler(os.Stderr, nil))}, processor)
	}
}

func TestHandlerThatUsesItsTransactionStandsTheCrashTest(t *testing.T) {
	consumertest.CrashTest(t, payments(24), consuming(inTransaction))
}

func TestCrashTestRunsOnARealKafka(t *testing.T) {
	c := payments(12)
	if _, is, _ := crashtest.Here(); !is {
		c.Brokers, c.Faults = []string{consumertest.Kafka(t)}, 2
	}
	consumertest.CrashTest(t, c, consuming(inTransaction))
}

// failures is a test that takes down what it is failed with.
type failures struct {
	testing.TB
	texts []string
}

func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

func TestHandlerThatUsesAnotherConnectionIsFoundOut(t *testing.T) {
	f := &failures{TB: t}
	consumertest.CrashTest(f, payments(24), consuming(beside))
	require.Len(t, f.texts, 1)
	require.Regexp(t, `public\.accounts: changed row name=account-\d; cents is \d+ and should be 40`, f.texts[0])
	require.Regexp(t, `repeat it: Seed: \d+, Only: \d+`, f.texts[0])
}

// received are payments that a webhook sends, with a function for what it calls.
func received(function string) crashtest.Config {
	c := payments(24)
	c.Schema += `;
		create table received (key uuid primary key);
		create function twice(key text, body bytea) returns void language sql as $$
			insert into accounts values ('all', 5) on conflict (name) do update set cents = accounts.cents + 5 $$;
		create function once(key uuid, body bytea) returns void language plpgsql as $$ begin
			insert into received values (once.key) on conflict do nothing;
			if found then
				perform twice('', '');
			end if;
		end $$`
	c.Webhooks = []crashtest.Webhook{{Handler: "add", Receiver: function}}
	return c
}

func TestWebhookWhoseReceiverKeepsTheKeyStandsTheCrashTest(t *testing.T) {
	consumertest.CrashTest(t, received("public.once"), consuming(webhook))
}

func TestWebhookWhoseReceiverIgnoresTheKeyIsFoundOut(t *testing.T) {
	f := &failures{TB: t}
	consumertest.CrashTest(f, received("public.twice"), consuming(webhook))
	require.Len(t, f.texts, 1)
	require.Regexp(t, `public\.accounts: changed row name=all; cents is \d+ and should be 120`, f.texts[0])
}

func TestCallBeforeItsMessageIsAcceptedIsFoundOut(t *testing.T) {
	f := &failures{TB: t}
	consumertest.CrashTest(f, received("public.once"), consuming(early))
	require.Len(t, f.texts, 1)
	require.Regexp(t, `webhooks: changed row handler=add .*; accepted is false and should be true`, f.texts[0])
}
