package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Partition describes a partition, as the cluster tells.
type Partition struct {
	ID          int32
	Leader      int32 // a broker's ID, -1 for none
	LeaderEpoch int32 // -1 on brokers older than 2.1 (KIP-320)
	Replicas    int
	Err         error // such as kerr.LeaderNotAvailable
}

// Topic describes a topic, as the cluster tells, its partitions by ascending ID.
type Topic struct {
	Name       string
	ID         uuid.UUID // zero on brokers older than 2.8 (KIP-516)
	Partitions []Partition
	Err        error // such as kerr.UnknownTopicOrPartition
}

// Readable says that the topic is there, and this client may see it.
func (t Topic) Readable() bool { return t.Err == nil && len(t.Partitions) > 0 }

// Metadata asks any broker for the given topics, and creates none. Every topic is in the map, with its
// own error where the cluster has one. It goes past the cache of the transport, which is up to MetadataTTL
// old and knows no topic IDs.
func (w *Client) Metadata(ctx context.Context, topics []string) (map[string]Topic, error) {
	found := make(map[string]Topic, len(topics))
	if len(topics) == 0 {
		return found, nil
	}
	answer := kmsg.NewMetadataResponse()
	// Up to version 3 a request for a topic may create it.
	err := w.Ask(ctx, Call{Broker: AnyBroker, Request: metadataRequest(topics), Min: 4, Max: 12}, &answer)
	if err != nil {
		return nil, fmt.Errorf("metadata of %s: %w", strings.Join(topics, ", "), err)
	}
	for _, name := range topics {
		found[name] = Topic{Name: name, Err: ErrLeftOut}
	}
	for _, t := range answer.Topics {
		if t.Topic != nil {
			found[*t.Topic] = readTopic(*t.Topic, t)
		}
	}
	return found, nil
}

// TopicNames asks any broker for the names of all topics that this client may describe, but for Kafka's own.
func (w *Client) TopicNames(ctx context.Context) ([]string, error) {
	request, answer := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataResponse() // no topics is all
	request.AllowAutoTopicCreation = false
	if err := w.Ask(ctx, Call{Broker: AnyBroker, Request: request, Min: 4, Max: 12}, &answer); err != nil {
		return nil, fmt.Errorf("metadata of all topics: %w", err)
	}
	var names []string
	for _, t := range answer.Topics {
		if t.Topic != nil && !t.IsInternal {
			names = append(names, *t.Topic)
		}
	}
	return names, nil
}

func metadataRequest(topics []string) *kmsg.MetadataRequest {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		request.Topics = append(request.Topics, topic)
	}
	return request
}

func readTopic(name string, t kmsg.MetadataResponseTopic) Topic {
	topic := Topic{Name: name, ID: t.TopicID, Err: kerr.ErrorForCode(t.ErrorCode)}
	for _, p := range t.Partitions {
		topic.Partitions = append(topic.Partitions, Partition{
			ID: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: len(p.Replicas),
			Err: kerr.ErrorForCode(p.ErrorCode),
		})
	}
	slices.SortFunc(topic.Partitions, func(x, y Partition) int { return int(x.ID - y.ID) })
	return topic
}

// Led returns a partition that has a leader, or why there is none.
func (t Topic) Led(id int32) (Partition, error) {
	if t.Err != nil {
		return Partition{}, t.Err
	}
	for _, p := range t.Partitions {
		switch {
		case p.ID != id:
		case p.Leader < 0:
			return p, errors.Join(kerr.LeaderNotAvailable, p.Err)
		default:
			return p, nil // an error beside a leader is a replica's
		}
	}
	return Partition{}, kerr.UnknownTopicOrPartition
}

// IsGone says that a topic or partition is not there, or not the one that was asked for.
func IsGone(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}
