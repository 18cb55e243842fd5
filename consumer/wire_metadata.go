package consumer

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

// partitionMetadata is what the cluster tells of a partition.
type partitionMetadata struct {
	id          int32
	leader      int32 // a broker's ID, -1 for none
	leaderEpoch int32 // -1 on brokers older than 2.1 (KIP-320)
	replicas    int
	err         error // such as kerr.LeaderNotAvailable
}

// topicMetadata is what the cluster tells of a topic, its partitions by ascending ID.
type topicMetadata struct {
	name       string
	id         uuid.UUID // zero on brokers older than 2.8 (KIP-516)
	partitions []partitionMetadata
	err        error // such as kerr.UnknownTopicOrPartition
}

// readable says that the topic is there, and this client may see it.
func (t topicMetadata) readable() bool { return t.err == nil && len(t.partitions) > 0 }

// metadata asks any broker for the given topics, and creates none. Every topic is in the map, with its
// own error where the cluster has one. It goes past the cache of the transport, which is up to MetadataTTL
// old and knows no topic IDs.
func (w *wire) metadata(ctx context.Context, topics []string) (map[string]topicMetadata, error) {
	found := make(map[string]topicMetadata, len(topics))
	if len(topics) == 0 {
		return found, nil
	}
	answer := kmsg.NewMetadataResponse()
	// Up to version 3 a request for a topic may create it.
	err := w.ask(ctx, call{broker: anyBroker, request: metadataRequest(topics), min: 4, max: 12}, &answer)
	if err != nil {
		return nil, fmt.Errorf("metadata of %s: %w", strings.Join(topics, ", "), err)
	}
	for _, name := range topics {
		found[name] = topicMetadata{name: name, err: errLeftOut}
	}
	for _, t := range answer.Topics {
		if t.Topic != nil {
			found[*t.Topic] = readTopic(*t.Topic, t)
		}
	}
	return found, nil
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

func readTopic(name string, t kmsg.MetadataResponseTopic) topicMetadata {
	topic := topicMetadata{name: name, id: t.TopicID, err: kerr.ErrorForCode(t.ErrorCode)}
	for _, p := range t.Partitions {
		topic.partitions = append(topic.partitions, partitionMetadata{
			id: p.Partition, leader: p.Leader, leaderEpoch: p.LeaderEpoch, replicas: len(p.Replicas), err: kerr.ErrorForCode(p.ErrorCode),
		})
	}
	slices.SortFunc(topic.partitions, func(x, y partitionMetadata) int { return int(x.id - y.id) })
	return topic
}

// partition returns a partition that has a leader, or why there is none.
func (t topicMetadata) partition(id int32) (partitionMetadata, error) {
	if t.err != nil {
		return partitionMetadata{}, t.err
	}
	for _, p := range t.partitions {
		switch {
		case p.id != id:
		case p.leader < 0:
			return p, errors.Join(kerr.LeaderNotAvailable, p.err)
		default:
			return p, nil // an error beside a leader is a replica's
		}
	}
	return partitionMetadata{}, kerr.UnknownTopicOrPartition
}

// isGone says that a topic or partition is not there, or not the one that was asked for.
func isGone(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}
