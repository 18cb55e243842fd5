// Package cluster asks Kafka what operators ask: about topics, groups and offsets; and moves groups that have no
// members.
//
// In reading order: cluster.go how it asks, topics.go, group.go, offsets.go and settings.go what, standing.go where
// a group stands by Kafka and by Postgres, reset.go how it is moved.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/shards"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Config says how to reach a cluster. Only Brokers is required.
type Config struct {
	// RequestTimeout bounds too how long a broker is asked again that is not ready to answer.
	consumer.Connection
	// Home is the shard that is asked about, as in consumer.Config: partitions that are at home elsewhere are left out
	// of offsets, and stay where they are. Default: all are at home.
	Home shards.Home
	// Logger gets what an operator should know. Default slog.Default().
	Logger *slog.Logger
}

// Cluster asks Kafka about topics, groups and offsets, and sets the offsets of groups that have no members. It joins
// no group and creates nothing. Make it with New. It is safe for concurrent use.
type Cluster struct {
	cfg       consumer.Config
	transport *kafka.Transport
	wire      *wire.Client
}

// ErrNotAllowed says that the cluster's ACLs keep this client from something.
var ErrNotAllowed = errors.New("the cluster's ACLs do not allow this client to see it")

// New checks the config. It talks to no broker yet.
func New(cfg Config) (*Cluster, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("cluster config: %w", err)
	}
	c := consumer.Config{Connection: cfg.Connection, Home: cfg.Home, Logger: cfg.Logger}
	c = c.WithDefaults()
	transport := c.Transport()
	return &Cluster{cfg: c, transport: transport,
		wire: wire.New(transport, c.Brokers, c.ClientID, c.RequestTimeout)}, nil
}

// Close closes the Cluster's connections. Nothing may be asking any more.
func (c *Cluster) Close() { c.transport.CloseIdleConnections() }

// patiently asks until it is answered, for RequestTimeout at most, where a broker says that it is only not ready:
// leaders and coordinators move, and a new cluster has none for some seconds.
func (c *Cluster) patiently(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	for retry := wait.NewBackoff(); ; retry.Wait(ctx) {
		err := ask()
		if !kerr.IsRetriable(err) || ctx.Err() != nil {
			return allowed(err)
		}
	}
}

// allowed marks a refusal by ACLs with ErrNotAllowed.
func allowed(err error) error {
	for _, denied := range []error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.ClusterAuthorizationFailed} {
		if errors.Is(err, denied) {
			return fmt.Errorf("%w: %w", ErrNotAllowed, err)
		}
	}
	return err
}
