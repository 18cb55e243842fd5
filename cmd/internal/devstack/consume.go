package devstack

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// settingsVariable carries a consumer's settings to its process: a command line would show the DSN to everybody.
const settingsVariable = "FIRSTSEEN_DEV_CONSUMER"

// settings are what the consumer's process is told.
type settings struct {
	names
	Brokers  []string
	DSN      string
	ClientID string
	Fail     float64
	Handler  string
}

// Consume is the consumer's process: an ordinary consumer with an ordinary handler. It runs until ctx ends.
func Consume(ctx context.Context) error {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(settingsVariable)), &s); err != nil {
		return fmt.Errorf("read %s, which `firstseen dev` sets: %w", settingsVariable, err)
	}
	pool, err := openPool(ctx, s.DSN, s.searchPath())
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "dev", Schema: s.Schema})
	if err != nil {
		return err
	}
	registry := &handlers.Registry{}
	if err := registry.Add(s.booking()); err != nil {
		return err
	}
	processor, err := handlers.NewProcessor(handlers.Config{
		Store: store, Handlers: registry, LanePoll: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	c, err := consumer.New(s.consumer(), processor)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// booking is the handler as the options want it. Retries are quick, and plenty: chance alone must not bury a message.
func (s *settings) booking() handlers.Registration {
	return handlers.Registration{
		Name: "book", Topics: []string{s.Topic}, Handler: book(s.Handler, s.Fail),
		Retry: handlers.Retry{Base: 100 * time.Millisecond, Cap: time.Second, MaxAttempts: 1000},
	}
}

// consumer is a config with short times: a crash is to be over in seconds, also where nobody tells the group that a
// member is gone. Kafka takes no session under 6 s (group.min.session.timeout.ms); a drain that is sure to end
// within it, which the config checks, needs 12.
func (s *settings) consumer() consumer.Config {
	return consumer.Config{
		Connection:     consumer.Connection{Brokers: s.Brokers, ClientID: s.ClientID, RequestTimeout: 3 * time.Second},
		Group:          s.Group,
		SessionTimeout: 12 * time.Second, RebalanceTimeout: 12 * time.Second,
		HeartbeatInterval: 500 * time.Millisecond,
		DrainTimeout:      time.Second, JoinBackoff: 200 * time.Millisecond,
		CommitInterval: 500 * time.Millisecond, FetchWait: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
}
