package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What the two clients read at most, before anything is done with a message but finding its ID: the ceiling of whoever
// builds on them. kafka-go has a Reader for each partition, with buffers large enough that no fetch waits for the
// program; franz-go's client is as fast as it comes.

var errNoValue = errors.New("a message has no value")

func fetchKafkaGo(ctx context.Context, j job, p *progress) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var left atomic.Int64
	left.Store(int64(j.Messages))
	var running sync.WaitGroup
	for partition := range j.Partitions {
		running.Go(func() { stop(readPartition(ctx, j, p, partition, &left)) })
	}
	running.Wait()
	if p.isDone() {
		return nil
	}
	return context.Cause(ctx)
}

// readPartition reads until the last message of all partitions was seen, by whom ever; ctx ends with it.
func readPartition(ctx context.Context, j job, p *progress, partition int, left *atomic.Int64) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:         j.Brokers,
		Topic:           j.Topic,
		Partition:       partition,
		MinBytes:        1,
		MaxBytes:        10 << 20,
		MaxWait:         100 * time.Millisecond,
		QueueCapacity:   1_000,
		ReadLagInterval: -1,
	})
	defer func() { _ = reader.Close() }()
	for {
		m, err := reader.ReadMessage(ctx)
		if err != nil {
			return err
		}
		if _, err := headerID(m.Headers); err != nil {
			return err
		}
		if len(m.Value) == 0 {
			return errNoValue
		}
		if left.Add(-1) == 0 {
			p.finish()
			return nil
		}
	}
}

func fetchFranz(ctx context.Context, j job, p *progress) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(j.Brokers...),
		kgo.ConsumeTopics(j.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for left := j.Messages; left > 0; {
		records := client.PollFetches(ctx)
		if err := records.Err(); err != nil {
			return err
		}
		if err := lookAt(records.Records()); err != nil {
			return err
		}
		left -= records.NumRecords()
	}
	p.finish()
	return nil
}

func lookAt(records []*kgo.Record) error {
	for _, r := range records {
		if _, err := recordID(r); err != nil {
			return err
		}
		if len(r.Value) == 0 {
			return errNoValue
		}
	}
	return nil
}

func recordID(r *kgo.Record) (uuid.UUID, error) {
	for _, h := range r.Headers {
		if h.Key == idHeader {
			return uuid.ParseBytes(h.Value)
		}
	}
	return uuid.Nil, errNoID
}
