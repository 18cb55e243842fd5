package config

import (
	"slices"
	"strings"
	"time"
)

// Scratch are servers that are there to be broken, and how a config's handlers are tried on them.
type Scratch struct {
	DSN      Secret
	Brokers  []string
	ClientID string
	// Batch caps a batch's messages; 0: as the config says.
	Batch int
	// Webhook is where a handler of this name posts to, instead of its own URL, and WebhookTimeout its time limit.
	Webhook        func(handler string) string
	WebhookTimeout time.Duration
}

// notTried are the sections that a trial on other servers leaves out. What is wrong in them is no matter.
var notTried = []string{"postgres.dsn", "postgres.dsn_file", "postgres.max_connections", "postgres.capacity", "kafka",
	"dead_letter_topic", "start_at", "timeouts", "http", "ingress", "outbox", "health", "retention"}

// LoadScratch is Load for a trial of the handlers on other servers. Nothing outside hears of it: logins, HTTP, the
// dead letter topic and what sends the outbox are left out, and webhooks post elsewhere, without their secrets and
// headers. Waits are short.
func LoadScratch(path string, environ []string, s Scratch) (Config, error) {
	l, c := load(path, environ)
	if !l.unreadable {
		l.forget(notTried)
		c.scratch(s)
	}
	l.finish(&c)
	return c, l.err()
}

// forget has it be as if some sections were not in the file.
func (l *loader) forget(sections []string) {
	of := func(path string) bool {
		return slices.ContainsFunc(sections, func(s string) bool { return path == s || strings.HasPrefix(path, s+".") })
	}
	l.faults = slices.DeleteFunc(l.faults, func(f Fault) bool { return of(f.Key) || l.lacksSecret(f.Key) })
	for _, s := range sections {
		section, name := split(s)
		if parent, is := valueAt(l.raw, strings.TrimSuffix(section, ".")).(map[string]any); is {
			delete(parent, name)
		}
		if section == "" {
			delete(l.raw, name)
		}
	}
}

// scratch has the config use other servers and wait for little.
func (c *Config) scratch(s Scratch) {
	plain := defaults()
	plain.Postgres.Schema, plain.Postgres.PreparedStatements = c.Postgres.Schema, c.Postgres.PreparedStatements
	c.Postgres, c.Kafka = plain.Postgres, plain.Kafka
	c.Postgres.DSN, c.Kafka.Brokers = s.DSN, s.Brokers
	if s.ClientID != "" {
		c.Kafka.ClientID = s.ClientID
	}
	if s.Batch > 0 {
		c.Batch.Messages = s.Batch
	}
	c.HTTP, c.Ingress, c.Outbox, c.Health, c.Retention =
		plain.HTTP, plain.Ingress, plain.Outbox, plain.Health, plain.Retention
	c.DeadLetterTopic, c.StartAt = "", plain.StartAt
	handler := min(c.Timeouts.Handler, 20*time.Second) // for so long a process that stands still keeps what it is at
	c.Timeouts = Timeouts{Session: 12 * time.Second, Rebalance: 12 * time.Second, Heartbeat: 500 * time.Millisecond,
		JoinBackoff: 50 * time.Millisecond, Request: 3 * time.Second, Drain: time.Second, Postgres: 5 * time.Second,
		Handler: handler, CommitInterval: 200 * time.Millisecond, MetadataInterval: plain.Timeouts.MetadataInterval,
		PatternInterval: plain.Timeouts.PatternInterval}
	c.Fetch.Wait = 100 * time.Millisecond
	for i := range c.Topics {
		c.Topics[i].scratch(s)
	}
}

// scratch has each handler try again soon, and often enough for a fault or two.
func (t *Topic) scratch(s Scratch) {
	const attempts = 20
	for i := range t.Handlers {
		h := &t.Handlers[i]
		h.Retry = Retry{Base: 10 * time.Millisecond, Cap: 100 * time.Millisecond, MaxAttempts: attempts}
		if h.Webhook.given() {
			h.Webhook = Webhook{URL: s.Webhook(h.Name), Timeout: s.WebhookTimeout, AllowPrivate: true,
				Concurrency: h.Webhook.Concurrency}
		}
	}
}
