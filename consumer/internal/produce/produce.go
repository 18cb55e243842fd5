// Package produce writes records to Kafka: acknowledged by all replicas that are in sync, each partition's in their
// order, and so that a record that its broker refuses takes no other along.
package produce

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
)

// Producer produces to any topic. It is safe for concurrent use; of one partition, runs come one after the other.
type Producer struct {
	Transport *kafka.Transport
	Brokers   []string
}

// Run is records of one partition, known by their places.
type Run struct {
	Topic     string
	Partition int
	// Record makes a place's record, each time anew: sending uses it up.
	Record func(place int) kafka.Record
	// Sent is told that a place's record is there to stay.
	Sent func(place int)
	// Refused is told that the broker will never take a place's record as it is. Its error ends the run.
	Refused func(ctx context.Context, place int, err error) error
}

// Produce writes records in the order of places. Where the broker refuses them together each half is written by itself,
// down to the one that it refuses. Behind any other error nothing is written, or it would overtake.
func (p *Producer) Produce(ctx context.Context, r Run, places []int) error {
	records := make([]kafka.Record, len(places))
	for i, place := range places {
		records[i] = r.Record(place)
	}
	err := p.Send(ctx, r.Topic, r.Partition, 0, records...)
	switch {
	case Refused(err) && len(places) == 1:
		return r.Refused(ctx, places[0], err)
	case Refused(err):
		half := len(places) / 2
		if err := p.Produce(ctx, r, places[:half]); err != nil {
			return err
		}
		return p.Produce(ctx, r, places[half:])
	case err != nil:
		return err
	}
	for _, place := range places {
		r.Sent(place)
	}
	return nil
}

// Send writes records in one request.
func (p *Producer) Send(ctx context.Context, topic string, partition int, compression kafka.Compression,
	records ...kafka.Record) error {
	client := &kafka.Client{Addr: kafka.TCP(p.Brokers...), Transport: p.Transport}
	answer, err := client.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Compression: compression,
		Records: kafka.NewRecordReader(records...),
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		return fmt.Errorf("produce to %s/%d: %w", topic, partition, err)
	}
	return nil
}

// Partition picks a key's partition as Kafka's own producers do.
func Partition(key []byte, partitions []int) int {
	return kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: key}, partitions...)
}

// Content keeps null and empty apart.
func Content(b []byte) kafka.Bytes {
	if b == nil {
		return nil
	}
	return kafka.NewBytes(b)
}

// TooLarge says that the broker takes no records of that size, alone or together.
func TooLarge(err error) bool {
	return errors.Is(err, kafka.MessageSizeTooLarge) || errors.Is(err, kafka.RecordListTooLarge)
}

// invalidRecord (KIP-467) is for a null key in a compacted topic. kafka-go has no name for it.
const invalidRecord = kafka.Error(87)

// Refused says that the broker will never take the records as they are.
func Refused(err error) bool { return TooLarge(err) || errors.Is(err, invalidRecord) }
