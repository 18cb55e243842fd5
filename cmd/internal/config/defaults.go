package config

import (
	"slices"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
	"github.com/firstseen/firstseen/handlers/outbox"
	"github.com/firstseen/firstseen/handlers/schemas"
	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

// defaults asks the packages below for theirs.
func defaults() Config {
	d := consumer.Config{}.WithDefaults()
	in := ingress.Config{}.WithDefaults()
	out := outbox.Config{}.WithDefaults()
	limits := service.DefaultLimits()
	return Config{
		Postgres: Postgres{Schema: migrations.DefaultSchema, PreparedStatements: true},
		Kafka:    Kafka{ClientID: d.ClientID},
		Registry: Registry{Timeout: schemas.Config{}.WithDefaults().Timeout},
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
			PatternInterval: d.PatternInterval,
		},
		Log:  Log{Level: "info", Format: "text"},
		HTTP: HTTP{Rate: 20},
		Ingress: Ingress{Conflict: conflictAnswer, BodyLimit: Size(in.MaxBytes), MaxMessages: in.MaxMessages,
			Concurrency: in.Concurrency, BodyTimeout: in.ReadTime, WorkTimeout: in.WorkTime},
		Outbox:    Outbox{Batch: out.Batch, Poll: out.IdlePoll, SendTimeout: out.SendTimeout},
		Health:    Health{Window: limits.Window, Degraded: Degraded(limits.Degraded), Unhealthy: Unhealthy(limits.Unhealthy)},
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
	for i := range c.Outbox.Destinations {
		c.Outbox.Destinations[i].fillIn()
	}
	if c.Postgres.MaxConnections == 0 {
		c.Postgres.MaxConnections = c.leastConnections() + 1
	}
}

func (t *Topic) fillIn() {
	if len(t.ID) == 0 {
		t.ID = Sources{"header:message-id", "header:id"}
	}
	if t.NoID == nil {
		t.NoID = slices.Clone(identity.NoIDs)
	}
	if t.Format == "" {
		t.Format = string(schemas.Auto)
	}
	for i := range t.Handlers {
		t.Handlers[i].fillIn()
	}
}

func (h *Handler) fillIn() {
	r := handlers.Registration{Ordering: dedup.Ordering(h.Ordering), Retry: handlers.Retry(h.Retry)}.WithDefaults()
	h.Ordering, h.Retry = string(r.Ordering), Retry(r.Retry)
	if h.Webhook.given() {
		h.Webhook.fillIn()
	}
}

func (w *Webhook) fillIn() {
	w.Concurrency = handlers.Registration{Concurrency: w.Concurrency}.WithDefaults().Concurrency
	w.Timeout = w.config().WithDefaults().Timeout
}
