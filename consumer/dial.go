package consumer

import (
	"net"

	"github.com/segmentio/kafka-go"
)

// transport is for all requests but the group's own.
func (c *Config) transport() *kafka.Transport {
	return &kafka.Transport{
		Dial:        (&net.Dialer{Timeout: c.RequestTimeout}).DialContext,
		DialTimeout: c.RequestTimeout,
		ClientID:    c.ClientID,
		TLS:         c.TLS,
		SASL:        c.SASL,
	}
}

// dialer is for the group's coordinator.
func (c *Config) dialer() *kafka.Dialer {
	return &kafka.Dialer{
		ClientID:      c.ClientID,
		Timeout:       c.RequestTimeout,
		DualStack:     true,
		TLS:           c.TLS,
		SASLMechanism: c.SASL,
	}
}
