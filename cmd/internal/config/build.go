package config

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

// Consumer makes the consumer's config, which logs to log. Certificates are read from their files, now and again for new
// connections.
func (c Config) Consumer(log *slog.Logger) (consumer.Config, error) {
	files := certificates("kafka.tls", log, func() (*tls.Config, []Fault) { return c.Kafka.TLS.config("kafka.tls") })
	first, err := files.read()
	if err != nil {
		return consumer.Config{}, err
	}
	login, err := c.Kafka.SASL.config()
	if err != nil {
		return consumer.Config{}, err
	}
	settings := c.settings()
	settings.TLS, settings.SASL, settings.Logger = first, login, log
	if first != nil {
		settings.FreshTLS = files.get
	}
	settings.Topics, err = c.topics()
	return settings, err
}

// settings are those of the consumer that need nothing to be read.
func (c Config) settings() consumer.Config {
	t := c.Timeouts
	return consumer.Config{
		Connection: consumer.Connection{Brokers: c.Kafka.Brokers, ClientID: c.Kafka.ClientID,
			RequestTimeout: t.Request},
		Group: c.Group, Home: c.Postgres.Home(),
		StartAt: consumer.StartAt(c.StartAt), OnLoss: consumer.Policy(c.OnLoss),
		OnReset:          consumer.Policy(c.OnReset),
		OnPostgresBehind: consumer.Policy(c.OnPostgresBehind),
		MaxParked:        c.MaxParked, DeadTopic: c.DeadLetterTopic,
		MaxBatch: c.Batch.Messages, MaxBatchBytes: int(c.Batch.Bytes), Transactions: c.Batch.Transactions,
		BufferBytes: int(c.Fetch.Buffer), FetchWait: c.Fetch.Wait, FetchBytes: int(c.Fetch.Bytes),
		SessionTimeout: t.Session, RebalanceTimeout: t.Rebalance, HeartbeatInterval: t.Heartbeat,
		JoinBackoff: t.JoinBackoff, DrainTimeout: t.Drain,
		CommitInterval: t.CommitInterval, MetadataInterval: t.MetadataInterval, PatternInterval: t.PatternInterval,
	}
}

// Store makes the store's config. Lanes of a process that is cut off are free again when a handler's time is over. The
// program waits for Postgres itself, with all that it needs from there.
func (c Config) Store() dedup.Config {
	return dedup.Config{Inbox: c.Inbox, Schema: c.Postgres.Schema, AnswerTimeout: c.Timeouts.Postgres,
		IdleAfter: c.Timeouts.Handler + c.Timeouts.Postgres, Patience: -1}
}

// Logger writes to w as the config says, from a level on.
func (c Config) Logger(w io.Writer, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func (c Config) level() (level slog.Level) {
	_ = level.UnmarshalText([]byte(c.Log.Level)) // checked
	return level
}

func (c Config) topics() ([]consumer.Topic, error) {
	topics := make([]consumer.Topic, len(c.Topics))
	registry, err := c.Registry.open()
	if err != nil {
		return nil, err
	}
	for i, t := range c.Topics {
		sources := make([]identity.Source, len(t.ID))
		for j, text := range t.ID {
			if err := sources[j].UnmarshalText([]byte(text)); err != nil {
				return nil, err
			}
		}
		rule, err := identity.NewRule(sources...)
		if err != nil {
			return nil, err
		}
		topics[i] = consumer.Topic{Name: t.Name, Pattern: t.Pattern, Identity: rule.WithNoIDs(t.NoID...),
			TenantHeader: t.TenantHeader, Fingerprint: identity.FingerprintMode(t.Fingerprint), Format: t.format(registry)}
	}
	return topics, nil
}

// Summary says in one line what a program with this config does. It shows no secret.
func (c Config) Summary() string {
	if len(c.Topics) == 0 {
		kafka := ""
		if c.usesKafka() {
			kafka = fmt.Sprintf(", Kafka %s (%s)", strings.Join(c.Kafka.Brokers, ","), c.Kafka.security())
		}
		return fmt.Sprintf("%s reads nothing%s; Postgres is %s%s", c.Group, c.Outbox.summary(), c.Postgres.Place(), kafka)
	}
	names := make([]string, len(c.Topics))
	handlers := map[string]bool{}
	for i, t := range c.Topics {
		names[i] = t.Label()
		for _, h := range t.Handlers {
			handlers[h.Name] = true
		}
	}
	hooks := ""
	if n := len(c.webhooks()); n > 0 {
		hooks = fmt.Sprintf(", %d of them by webhook", n)
	}
	return fmt.Sprintf("group %s reads %s (%s) from %s (%s) and gives them to %s in %s%s%s",
		c.Group, counted(len(names), "topic"), strings.Join(names, ", "), strings.Join(c.Kafka.Brokers, ","),
		c.Kafka.security(), counted(len(handlers), "handler"), c.Postgres.Place()+c.Postgres.spread(), hooks,
		c.Outbox.summary())
}

func (k Kafka) security() string {
	parts := []string{"no TLS", "no SASL"}
	if k.TLS.Enabled {
		parts[0] = "TLS"
	}
	if k.SASL.Mechanism != "" {
		parts[1] = "SASL " + k.SASL.Mechanism
	}
	return strings.Join(parts, ", ")
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
