package consumertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// Cluster is a Kafka of one test, of brokers that are controllers too.
type Cluster struct {
	Brokers []*Broker

	scratch *child.Scratch
}

// StartKafka starts a broker for this test alone, to stop and start again. It is gone at the test's end.
func StartKafka(t testing.TB) *Broker {
	t.Helper()
	return StartKafkaCluster(t, 1).Brokers[0]
}

// StartKafkaCluster starts n brokers for this test alone. Of three or more, topics have three replicas by
// default and a write needs two, so one broker can be stopped.
func StartKafkaCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	needJava(t)
	cluster, err := startCluster(context.Background(), n)
	if err != nil {
		t.Fatalf("consumertest: %v", err)
	}
	t.Cleanup(cluster.close)
	return cluster
}

// Addrs are the brokers' addresses.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, b := range c.Brokers {
		addrs = append(addrs, b.Addr)
	}
	return addrs
}

func startCluster(ctx context.Context, n int) (*Cluster, error) {
	libs, err := jars()
	if err != nil {
		return nil, fmt.Errorf("get kafka: %w", err)
	}
	scratch, err := child.NewScratch("kafka", nil)
	if err != nil {
		return nil, err
	}
	c := &Cluster{scratch: scratch}
	if err := c.start(ctx, libs, n); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, libs string, n int) error {
	heap := "512m"
	if n > 1 {
		heap = "384m"
	}
	for id := 1; id <= n; id++ {
		b, err := newBroker(id, libs, c.scratch.Path(fmt.Sprint(id)), heap)
		if err != nil {
			return err
		}
		c.Brokers = append(c.Brokers, b)
	}
	if err := c.each(func(b *Broker) error { return b.format(c.settings()) }); err != nil {
		return err
	}
	return c.each(func(b *Broker) error { return b.start(ctx) })
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

// settings are those that all brokers share and that depend on who else is there.
func (c *Cluster) settings() string {
	var voters []string
	for _, b := range c.Brokers {
		voters = append(voters, fmt.Sprintf("%d@%s", b.ID, b.controller))
	}
	text := "controller.quorum.voters=" + strings.Join(voters, ",") + "\n"
	if len(c.Brokers) >= 3 {
		text += "default.replication.factor=3\nmin.insync.replicas=2\n" +
			"offsets.topic.replication.factor=3\n" +
			"transaction.state.log.replication.factor=3\ntransaction.state.log.min.isr=2\n"
	}
	return text
}

func (c *Cluster) close() {
	for _, b := range c.Brokers {
		b.kill()
	}
	c.scratch.Remove()
}
