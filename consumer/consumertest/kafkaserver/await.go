package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

const (
	pollEvery = 50 * time.Millisecond
	askLimit  = time.Second
)

// awaitAnswer waits until the broker is one of those that the cluster's metadata names.
func (b *Broker) awaitAnswer(ctx context.Context, process *child.Process) error {
	return b.await(ctx, process, func(ctx context.Context, admin *kadm.Client) error {
		metadata, err := admin.BrokerMetadata(ctx)
		if err != nil {
			return err
		}
		for _, node := range metadata.Brokers.NodeIDs() {
			if int(node) == b.ID {
				return nil
			}
		}
		return errors.New("the cluster does not know it yet")
	})
}

// awaitGroups has the cluster make the topic for groups' offsets, which it otherwise does at a first group's
// cost, and waits until groups are served.
func (b *Broker) awaitGroups(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.await(ctx, b.process, func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.FetchOffsets(ctx, "first")
		if errors.Is(err, kerr.GroupIDNotFound) {
			return nil // a coordinator that serves, and looked
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("start kafka on %s: wait for groups: %w%s", b.Addr, err, child.Tail(b.logFile()))
	}
	return nil
}

// await repeats try until it gives no error, the process ends, or ctx does.
func (b *Broker) await(ctx context.Context, process *child.Process,
	try func(context.Context, *kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.MetadataMinAge(pollEvery))
	if err != nil {
		return err
	}
	defer client.Close()
	return process.Await(ctx, pollEvery, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		return try(ctx, kadm.NewClient(client))
	})
}
