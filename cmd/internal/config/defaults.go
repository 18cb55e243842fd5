package config

import (
	"slices"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

// defaults is what holds where nothing is said. What a package below has a default for, that package is asked.
func defaults() Config {
	d := consumer.Config{}.WithDefaults()
	return Config{
		Postgres: Postgres{Schema: migrations.DefaultSchema, PreparedStatements: true},
		Kafka:    Kafka{ClientID: d.ClientID},
		StartAt:  string(d.StartAt), OnLoss: string(d.OnLoss), OnReset: string(d.OnReset),
		OnPostgresBehind: string(d.OnPostgresBehind), MaxParked: d.MaxParked,
		Batch: Batch{Messages: d.MaxBatch, Bytes: Size(d.MaxBatchBytes), Transactions: d.Transactions},
		Fetch: Fetch{Buffer: Size(d.BufferBytes), Wait: d.FetchWait, Bytes: Size(d.FetchBytes)},
		Timeouts: Timeouts{
			Session: d.SessionTimeout, Rebalance: d.RebalanceTimeout, Heartbeat: d.HeartbeatInterval,
			JoinBackoff: d.JoinBackoff,
			Request:     d.RequestTimeout, Postgres: dial.Silence,
			Handler:        handlers.Config{}.WithDefaults().HandlerTimeout,
			CommitInterval: d.CommitInterval, MetadataInterval: d.MetadataInterval,
		},
		Log:  Log{Level: "info", Format: "text"},
		HTTP: HTTP{Rate: 20},
		Health: Health{
			Window:    5 * time.Minute,
			Degraded:  Degraded{Backlog: 100_000, OldestAge: 5 * time.Minute, FailureRatio: 0.05, DeadLetters: 10},
			Unhealthy: Unhealthy{FailureRatio: 0.5},
		},
		Retention: Retention{Interval: time.Hour},
	}
}

// fillIn adds the defaults that depend on other keys, and those within lists.
func (c *Config) fillIn() {
	if c.Inbox == "" {
		c.Inbox = c.Group
	}
	if c.Timeouts.Drain == 0 {
		c.Timeouts.Drain = c.settings().WithDefaults().DrainTimeout
	}
	for i := range c.Topics {
		c.Topics[i].fillIn()
	}
	if c.Postgres.MaxConnections == 0 {
		// Two for the lane workers and two to spare.
		c.Postgres.MaxConnections = c.Batch.Transactions + 4 + len(c.webhooks())
	}
}

func (t *Topic) fillIn() {
	if len(t.ID) == 0 {
		t.ID = Sources{"header:message-id", "header:id"}
	}
	if t.NoID == nil {
		t.NoID = slices.Clone(identity.NoIDs)
	}
	for i := range t.Handlers {
		t.Handlers[i].fillIn()
	}
}

func (h *Handler) fillIn() {
	r := handlers.Registration{Concurrency: h.Webhook.Concurrency, Ordering: dedup.Ordering(h.Ordering),
		Retry: handlers.Retry(h.Retry)}.WithDefaults()
	h.Ordering, h.Retry = string(r.Ordering), Retry(r.Retry)
	if h.Webhook.given() {
		h.Webhook.Concurrency = r.Concurrency
		h.Webhook.Timeout = h.Webhook.config().WithDefaults().Timeout
	}
}
