package retention

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Policy says how long what is done is kept. The zero value keeps everything, for ever. The schema's owner sets in the
// table upkeep_limits what nobody may go below.
type Policy struct {
	// IDs is the time that a message's ID is kept after it was first seen: after that a copy takes effect again. It
	// must be longer than the topics can bring messages again. Default: for ever.
	IDs time.Duration
	// Handlers are ages for the IDs of single handlers, by name, instead of IDs; 0 is for ever. Default: none.
	Handlers map[string]time.Duration
	// OutboxKeys is the time that a message's idempotency key is kept, and its ID, after it was sent out of the outbox:
	// after that one of the same key is sent again. Default: for ever.
	OutboxKeys time.Duration
	// Inbox is the time that processed messages are kept, in whole days, and with them those of the outbox that were sent.
	// Days are shared by all inboxes of a schema.
	// Default: for ever.
	Inbox time.Duration
	// Interval is the time between two runs. Default an hour.
	Interval time.Duration
	// Force deletes IDs also where the topics may bring their messages again.
	Force bool
}

// Deletes says that anything is ever deleted, but for answers to HTTP requests.
func (p Policy) Deletes() bool {
	if p.IDs > 0 || p.Inbox > 0 || p.OutboxKeys > 0 {
		return true
	}
	for _, age := range p.Handlers {
		if age > 0 {
			return true
		}
	}
	return false
}

// Config says whose retention it is.
type Config struct {
	// Inbox is over the pool to work on, for which Pool prepares: the login needs the role firstseen_retention. Required.
	Inbox *operate.Inbox
	// Kafka is how to reach the cluster whose topics may bring messages again. Without brokers there is none: what came
	// from a topic is kept then.
	Kafka consumer.Connection
	// CommitInterval is how often running consumers commit their offsets, for which it waits. Default 1 s.
	CommitInterval time.Duration
	// Logger is told of what was deleted, and why not. Default slog.Default().
	Logger *slog.Logger
}

// New checks the config and makes a Keeper. It asks nobody yet. Close it after its last use; the inbox's pool stays the
// caller's.
func New(cfg Config) (*Keeper, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	var kafka *cluster.Cluster
	if len(cfg.Kafka.Brokers) > 0 {
		var err error
		if kafka, err = cluster.New(cluster.Config{Connection: cfg.Kafka, Logger: cfg.Logger}); err != nil {
			return nil, err
		}
	}
	store := cfg.Inbox.Store().Config()
	return &Keeper{Inbox: cfg.Inbox, Cluster: kafka,
		Settle: min(time.Minute, 5*cmp.Or(cfg.CommitInterval, time.Second)), Logger: cfg.Logger,
		Answers: &Answers{Pool: cfg.Inbox.Pool(), Logger: cfg.Logger,
			Config: idempotency.PostgresConfig{Schema: store.Schema, AnswerTimeout: store.AnswerTimeout}}}, nil
}

// Close closes the connections to the cluster. Nothing of the Keeper may be running any more.
func (k *Keeper) Close() {
	if k.Cluster != nil {
		k.Cluster.Close()
	}
}

// Pool has a pool's config give retention what it needs, and no more: a connection to work on, for which sweeps of
// answers wait too, and one for its lock, while they are needed.
func Pool(conf *pgxpool.Config) {
	conf.MinConns, conf.MinIdleConns, conf.MaxConns, conf.MaxConnIdleTime = 0, 0, 2, time.Minute
}
