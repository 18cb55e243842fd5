package devstack

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/admin"
	"github.com/firstseen/firstseen/consumer/sender"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// settingsVariable carries a consumer's settings to its process: a command line would show the DSN to everybody.
const settingsVariable = "FIRSTSEEN_DEV_CONSUMER"

// settings go to the consumer's process.
type settings struct {
	names
	Brokers  []string
	DSN      string
	ClientID string
	Fail     float64
	Handler  string
	Operator string // the address of the admin API and the operator's page; empty: there is none
}

// Consume is the consumer's process: an ordinary consumer with an ordinary handler, or, with an outbox, two of them and
// the relay between them. It runs until ctx ends.
func Consume(ctx context.Context) error {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(settingsVariable)), &s); err != nil {
		return fmt.Errorf("read %s, which `firstseen dev` sets: %w", settingsVariable, err)
	}
	if s.Sent == "" {
		return s.consume(ctx, "dev", s.Group, s.booking(s.Topic))
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return s.consume(ctx, "dev", s.Group, s.sending()) })
	parts.Go(func() error { return s.relay(ctx) })
	parts.Go(func() error { return s.consume(ctx, "dev second", s.Second, s.booking(s.Sent)) })
	return parts.Wait()
}

// consume is one consumer with one handler.
func (s *settings) consume(ctx context.Context, inbox, group string, handler handlers.Registration) error {
	const connections = 8
	pool, err := openPool(ctx, s.DSN, s.searchPath(), connections)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: inbox, Schema: s.Schema})
	if err != nil {
		return err
	}
	registry := &handlers.Registry{}
	if err := registry.Add(handler); err != nil {
		return err
	}
	processor, err := handlers.NewProcessor(handlers.Config{
		Store: store, Handlers: registry, LanePoll: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	c, err := consumer.New(s.consumer(group), processor)
	if err != nil {
		return err
	}
	if s.Operator != "" && handler.Name == bookName {
		end, err := s.operate(ctx, pool, service.Config{Group: group, Inbox: inbox}, service.PartsOf(c, processor))
		if err != nil { // the run is about messages
			slog.Warn("there is no operator's page", "error", err)
		} else {
			defer end()
		}
	}
	return c.Run(ctx)
}

// operate serves the admin API with the operator's page, to this host, until end is called.
func (s *settings) operate(ctx context.Context, pool *pgxpool.Pool, cfg service.Config, parts service.Parts) (
	end func(), err error) {
	cfg.Pool, cfg.Logger = pool, slog.New(slog.NewTextHandler(os.Stderr, nil))
	around, err := service.New(cfg)
	if err != nil {
		return nil, err
	}
	server, err := admin.New(admin.Config{Service: around, Listen: s.Operator, Page: true})
	if err != nil {
		return nil, err
	}
	if err := server.Start(ctx); err != nil {
		return nil, err
	}
	stop := around.Start(ctx)
	around.Attach(parts)
	return func() { server.Stop(); stop() }, nil
}

// bookName is the name of the handler that books.
const bookName = "book"

// relay sends what the first consumer adds to the outbox.
func (s *settings) relay(ctx context.Context) error {
	const connections = 12
	pool, err := openPool(ctx, s.DSN, s.searchPath(), connections)
	if err != nil {
		return err
	}
	defer pool.Close()
	kafka, err := sender.New(s.consumer(s.Group).Connection)
	if err != nil {
		return err
	}
	defer kafka.Close()
	relay, err := outbox.New(ctx, outbox.Config{Pool: pool, Store: dedup.Config{Schema: s.Schema},
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Destinations: []outbox.Destination{{Name: "kafka", Topics: []string{s.Sent}, Sender: kafka}}})
	if err == nil {
		relay.Run(ctx)
	}
	return err
}

// sending is the handler that adds each message to the outbox, as the one that follows from it.
func (s *settings) sending() handlers.Registration {
	h := outbox.Handler(&outbox.Writer{Schema: s.Schema},
		func(_ context.Context, _ pgx.Tx, m dedup.Message) ([]outbox.Message, error) {
			return []outbox.Message{{Topic: s.Sent, Key: m.Key, Value: m.Value, IdempotencyKey: m.ID.String()}}, nil
		})
	return handlers.Registration{Name: "send", Topics: []string{s.Topic}, Handler: handlers.Each(h)}
}

// booking is the handler as the options want it. Retries are quick, and plenty: chance alone must not bury a message.
func (s *settings) booking(topic string) handlers.Registration {
	return handlers.Registration{
		Name: bookName, Topics: []string{topic}, Handler: book(s.Handler, s.Fail),
		Retry: handlers.Retry{Base: 100 * time.Millisecond, Cap: time.Second, MaxAttempts: 1000},
	}
}

// consumer is a config with short times: a crash is to be over in seconds, also where nobody tells the group that a
// member is gone. Kafka takes no session under 6 s (group.min.session.timeout.ms); a drain that is sure to end
// within it, which the config checks, needs 12.
func (s *settings) consumer(group string) consumer.Config {
	return consumer.Config{
		Connection:     consumer.Connection{Brokers: s.Brokers, ClientID: s.ClientID, RequestTimeout: 3 * time.Second},
		Group:          group,
		SessionTimeout: 12 * time.Second, RebalanceTimeout: 12 * time.Second,
		HeartbeatInterval: 500 * time.Millisecond,
		DrainTimeout:      time.Second, JoinBackoff: 200 * time.Millisecond,
		CommitInterval: 500 * time.Millisecond, FetchWait: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
}
