package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/consumer/internal/wire"
)

// ClusterConfig says how to reach a cluster. Only Brokers is required.
type ClusterConfig struct {
	// RequestTimeout bounds too how long a broker is asked again that is not ready to answer.
	Connection
	// Logger gets what an operator should know. Default slog.Default().
	Logger *slog.Logger
}

// Cluster asks Kafka about topics, groups and offsets, and sets the offsets of groups that have no members. It joins
// no group and creates nothing. Make it with NewCluster. It is safe for concurrent use.
type Cluster struct {
	cfg       Config
	transport *kafka.Transport
	wire      *wire.Client
}

// ErrNotAllowed says that the cluster's ACLs keep this client from something.
var ErrNotAllowed = errors.New("the cluster's ACLs do not allow this client to see it")

// NewCluster checks the config. It talks to no broker yet.
func NewCluster(cfg ClusterConfig) (*Cluster, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("cluster config: %w", err)
	}
	c := Config{Connection: cfg.Connection, Logger: cfg.Logger}
	c = c.WithDefaults()
	transport := c.Transport()
	return &Cluster{cfg: c, transport: transport, wire: wire.New(transport, c.Brokers, c.ClientID, c.RequestTimeout)}, nil
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
