package consumer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/firstseen/firstseen/consumer/internal/login"
)

// Connection says how to reach a cluster. Only Brokers is required.
type Connection struct {
	// Brokers are addresses to find the cluster by, host:port. Required.
	Brokers []string
	// ClientID names this program in the brokers' logs. Default "firstseen".
	ClientID string
	// TLS, if set, encrypts all connections.
	TLS *tls.Config
	// FreshTLS, if set, is asked for each new connection's config, instead of TLS: so that certificates and authorities
	// can change while the program runs. It is called by several goroutines, and what it gives is not changed.
	FreshTLS func() *tls.Config
	// SASL, if set, authenticates all connections: kafka-go's mechanisms, or those of package oauthbearer.
	SASL sasl.Mechanism
	// RequestTimeout bounds each request to a broker, beyond what it asks the broker to wait. Default 10 s.
	RequestTimeout time.Duration
}

func (c *Connection) setDefaults() {
	setDefault(&c.ClientID, "firstseen")
	setDefault(&c.RequestTimeout, 10*time.Second)
}

// Check says what is missing.
func (c *Connection) Check() error {
	if len(c.Brokers) == 0 {
		return errors.New("brokers: at least one address is required")
	}
	return nil
}

// Transport carries all requests but a group's own. Whoever asked for it closes its idle connections.
func (c *Connection) Transport() *kafka.Transport {
	return &kafka.Transport{Dial: c.dial, DialTimeout: c.RequestTimeout, ClientID: c.ClientID}
}

// dialer reaches the group's coordinator.
func (c *Connection) dialer() *kafka.Dialer {
	return &kafka.Dialer{DialFunc: c.dial, ClientID: c.ClientID, Timeout: c.RequestTimeout}
}

// dial connects, encrypts and logs in, where that is asked for: kafka-go has one TLS config for all times, and logs in
// once.
func (c *Connection) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.RequestTimeout)
	defer cancel()
	conn, err := c.connect(ctx, network, address)
	if err != nil || c.SASL == nil {
		return conn, err
	}
	return login.By{Mechanism: c.SASL, ClientID: c.ClientID, Timeout: c.RequestTimeout}.Over(ctx, conn, address)
}

func (c *Connection) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if now := c.tls(); now != nil {
		return (&tls.Dialer{Config: now}).DialContext(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// tls is the config of a connection that is made now; nil: it is not encrypted.
func (c *Connection) tls() *tls.Config {
	if c.FreshTLS != nil {
		return c.FreshTLS()
	}
	return c.TLS
}
