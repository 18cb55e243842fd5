package kafkaserver

import (
	"context"
	"errors"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// Cluster is a Kafka of one or more brokers that are controllers too.
type Cluster struct {
	// Brokers has them by their id, from 1.
	Brokers []*Broker

	config  Config
	libs    string
	scratch *child.Scratch
}

// Addrs are the brokers' addresses, each host:port.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, b := range c.Brokers {
		addrs = append(addrs, b.Addr)
	}
	return addrs
}

// Close kills the brokers and removes what they wrote.
func (c *Cluster) Close() {
	for _, b := range c.Brokers {
		b.Kill()
	}
	c.scratch.Remove()
}

func (c *Cluster) start(ctx context.Context) error {
	for id := 1; id <= c.config.Brokers; id++ {
		b, err := newBroker(id, c)
		if err != nil {
			return err
		}
		c.Brokers = append(c.Brokers, b)
	}
	if err := c.each(func(b *Broker) error { return b.format(c.properties(b)) }); err != nil {
		return err
	}
	if err := c.each(func(b *Broker) error { return b.start(ctx) }); err != nil {
		return err
	}
	return c.Brokers[0].awaitGroups(ctx)
}

// each does something with all brokers at once: a quorum forms only when most of its voters are there.
func (c *Cluster) each(do func(*Broker) error) error {
	ends := make(chan error)
	for _, b := range c.Brokers {
		go func() { ends <- do(b) }()
	}
	var all error
	for range c.Brokers {
		all = errors.Join(all, <-ends)
	}
	return all
}
