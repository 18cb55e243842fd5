package consumer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/consumer/internal/wire"
)

// ClusterConfig says how to reach a cluster. Only Brokers is required.
type ClusterConfig struct {
	// Brokers are addresses to find the cluster by, host:port. Required.
	Brokers []string
	// ClientID is what brokers call this program in their logs. Default "firstseen".
	ClientID string
	// TLS, if set, encrypts all connections.
	TLS *tls.Config
	// SASL, if set, authenticates all connections.
	SASL sasl.Mechanism
	// RequestTimeout bounds each request to a broker, and how long a broker is asked again that is not ready to answer.
	// Default 10 s.
	RequestTimeout time.Duration
	// Logger gets what an operator should know. Default slog.Default().
	Logger *slog.Logger
}

// Cluster asks Kafka about topics, groups and offsets, and sets the offsets of groups that have no members. It joins no
// group and creates nothing. Make it with NewCluster. It is safe for concurrent use.
type Cluster struct {
	cfg       Config
	transport *kafka.Transport
	wire      *wire.Client
}

// ErrNotAllowed says that the cluster's ACLs keep this client from something.
var ErrNotAllowed = errors.New("the cluster's ACLs do not allow this client to see it")

// NewCluster checks the config. It talks to no broker yet.
func NewCluster(cfg ClusterConfig) (*Cluster, error) {
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("cluster config: brokers: at least one address is required")
	}
	c := Config{Brokers: cfg.Brokers, ClientID: cfg.ClientID, TLS: cfg.TLS, SASL: cfg.SASL,
		RequestTimeout: cfg.RequestTimeout, Logger: cfg.Logger}
	c.setDefaults()
	transport := c.transport()
	return &Cluster{cfg: c, transport: transport, wire: wire.New(transport, c.Brokers, c.ClientID, c.RequestTimeout)}, nil
}

// Close closes the Cluster's connections. Nothing may be asking any more.
func (c *Cluster) Close() { c.transport.CloseIdleConnections() }

// patiently asks until it is answered, for RequestTimeout at most, where a broker says that it is only not ready: leaders
// and coordinators move, and a new cluster has none for some seconds.
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
	for _, denied := range []error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed} {
		if errors.Is(err, denied) {
			return fmt.Errorf("%w: %w", ErrNotAllowed, err)
		}
	}
	return err
}
