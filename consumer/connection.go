package consumer

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
)

// Connection says how to reach a cluster. Only Brokers is required.
type Connection struct {
	// Brokers are addresses to find the cluster by, host:port. Required.
	Brokers []string
	// ClientID is what brokers call this program in their logs. Default "firstseen".
	ClientID string
	// TLS, if set, encrypts all connections.
	TLS *tls.Config
	// SASL, if set, authenticates all connections.
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

// Transport is for all requests but a group's own. Whoever asked for it closes its idle connections.
func (c *Connection) Transport() *kafka.Transport {
	return &kafka.Transport{
		Dial:        (&net.Dialer{Timeout: c.RequestTimeout}).DialContext,
		DialTimeout: c.RequestTimeout,
		ClientID:    c.ClientID,
		TLS:         c.TLS,
		SASL:        c.SASL,
	}
}

// dialer is for the group's coordinator.
func (c *Connection) dialer() *kafka.Dialer {
	return &kafka.Dialer{
		ClientID:      c.ClientID,
		Timeout:       c.RequestTimeout,
		DualStack:     true,
		TLS:           c.TLS,
		SASLMechanism: c.SASL,
	}
}
