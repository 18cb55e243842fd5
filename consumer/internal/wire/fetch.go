package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	fetchByName = 12 // the last version that names topics by name
	fetchByID   = 13 // names topics by ID only (KIP-516)
	fetchOldest = 4  // the first one with message format 2 and read_committed (KIP-98)
)

// FetchPartition asks for one partition's records from an offset on.
type FetchPartition struct {
	Topic       string
	TopicID     uuid.UUID // zero where the broker names none
	Partition   int32
	LeaderEpoch int32 // as metadata told it, -1 where it told none
	Offset      int64
	LastEpoch   *int32 // the leader epoch of the last message before offset; nil: not known
	// MaxBytes has the broker stop adding batches of this partition. The first batch of a response comes whole however
	// large it is (KIP-74).
	MaxBytes int32
}

// FetchOptions limit one request.
type FetchOptions struct {
	MaxWait            time.Duration // how long the broker may wait for MinBytes
	MinBytes, MaxBytes int32         // of the response, before decompression
	// Room bounds the memory of the response and its records. What does not fit is left for a later fetch. Default
	// none to speak of.
	Room *Room
}

// Fetched is the answer for one partition.
type Fetched struct {
	Topic     string
	Partition int32
	// Records are those that read_committed shows, in the order of their offsets. They share memory
	// with each other, which is what costs are about.
	Records []*Record
	Costs   Costs
	// Epochs are the leader epochs of what was decoded, records or not.
	Epochs Epochs
	// From is the offset that was asked for.
	From int64
	// Next is the offset to fetch next: past control records, aborted data and gaps of compaction. It
	// may move on where there are no records, and equals the offset asked for where err is set.
	Next int64
	// HighWatermark, lastStable and logStart are -1 where the broker tells none.
	HighWatermark, LastStable, LogStart int64
	// Err is Kafka's error for the partition (package kerr), a *DivergedError, or wraps kerr.CorruptMessage,
	// kerr.MessageTooLarge or kerr.UnsupportedForMessageFormat where the batch at next cannot be decoded.
	Err error
}

// ErrThrottled says that a broker has answered nothing, to have its client slow down.
var ErrThrottled = errors.New("throttled")

// Fetch asks the leader of some partitions for records, read_committed, outside of a fetch session. It
// answers for each part in the order of parts. Where all topic IDs are known a topic that was deleted
// and created again gives UnknownTopicID instead of another topic's records (KIP-516).
func (w *Client) Fetch(ctx context.Context, leader int32, parts []FetchPartition, opts FetchOptions) (
	[]Fetched, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	if opts.Room == nil {
		opts.Room = NewFixedRoom(4 * w.limits.batchBytes)
	}
	request := fetchRequest(parts, opts)
	body, err := w.do(ctx, Call{
		Broker: leader, Request: request, Min: fetchOldest, Max: newestFetch(parts),
		wait: opts.MaxWait, limit: int(opts.MaxBytes) + w.limits.batchBytes, allocate: opts.Room.allocate,
	})
	if err != nil {
		return nil, fmt.Errorf("fetch %d partitions from broker %d: %w", len(parts), leader, err)
	}
	answer, err := readFetchResponse(body, request.Version)
	if err != nil {
		return nil, fmt.Errorf("fetch %d partitions from broker %d: %w", len(parts), leader, err)
	}
	return w.decode(parts, answer, opts.Room, len(body)), nil
}

// newestFetch is the highest version that can name the topics of all parts.
func newestFetch(parts []FetchPartition) int16 {
	for _, p := range parts {
		if p.TopicID == uuid.Nil {
			return fetchByName
		}
	}
	return fetchByID
}

// fetchRequest carries both names and IDs of topics; the version decides which are sent.
func fetchRequest(parts []FetchPartition, opts FetchOptions) *kmsg.FetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis = int32(min(opts.MaxWait.Milliseconds(), math.MaxInt32))
	request.MinBytes, request.MaxBytes = opts.MinBytes, opts.MaxBytes
	request.IsolationLevel = 1
	type named struct {
		topic string
		id    uuid.UUID
	}
	place := make(map[named]int)
	for _, p := range parts {
		i, ok := place[named{p.Topic, p.TopicID}]
		if !ok {
			i = len(request.Topics)
			place[named{p.Topic, p.TopicID}] = i
			topic := kmsg.NewFetchRequestTopic()
			topic.Topic, topic.TopicID = p.Topic, p.TopicID
			request.Topics = append(request.Topics, topic)
		}
		partition := kmsg.NewFetchRequestTopicPartition()
		partition.Partition, partition.CurrentLeaderEpoch = p.Partition, p.LeaderEpoch
		partition.FetchOffset, partition.PartitionMaxBytes = p.Offset, p.MaxBytes
		if p.LastEpoch != nil {
			partition.LastFetchedEpoch = *p.LastEpoch
		}
		request.Topics[i].Partitions = append(request.Topics[i].Partitions, partition)
	}
	return request
}

// answerKey is a partition's name in a response: by its topic's ID from version 13 on.
type answerKey struct {
	topic     string
	topicID   uuid.UUID
	partition int32
}

func keyOf(p FetchPartition, version int16) answerKey {
	if version >= fetchByID {
		return answerKey{topicID: p.TopicID, partition: p.Partition}
	}
	return answerKey{topic: p.Topic, partition: p.Partition}
}

// Unanswered says that the broker told nothing of the partition, to slow this client down.
func (f *Fetched) Unanswered() bool { return f.Err == nil && f.HighWatermark < 0 }

// Bytes is the memory that keeping the records costs.
func (f *Fetched) Bytes() int { return f.Costs.Total() }

// decode matches the answers to the parts. A broker that throttles a client answers nothing at all, with
// no error, and holds back its next request itself (KIP-219).
func (w *Client) decode(parts []FetchPartition, answer fetchResponse, room *Room, size int) []Fetched {
	out := make([]Fetched, len(parts))
	place := make(map[answerKey]int, len(parts))
	for i, p := range parts {
		place[keyOf(p, answer.version)] = i
		out[i] = Fetched{Topic: p.Topic, Partition: p.Partition, From: p.Offset, Next: p.Offset,
			HighWatermark: -1, LastStable: -1, LogStart: -1}
		if !answer.throttled {
			out[i].Err = fmt.Errorf("fetch %s/%d@%d: %w", p.Topic, p.Partition, p.Offset, ErrLeftOut)
		}
	}
	for _, a := range answer.partitions {
		key := answerKey{topic: a.topic, topicID: a.topicID, partition: a.partition}
		if i, ok := place[key]; ok {
			out[i] = w.decodePartition(parts[i], a, room, size)
		}
	}
	return out
}

// decodePartition decodes one partition of an answer of so many bytes.
func (w *Client) decodePartition(p FetchPartition, a partitionResponse, room *Room, size int) Fetched {
	found := Fetched{Topic: p.Topic, Partition: p.Partition, From: p.Offset, Next: p.Offset,
		Err: kerr.ErrorForCode(a.errorCode)}
	switch {
	case found.Err != nil:
	case a.diverged != nil:
		found.Err = a.diverged
	default:
		found = w.DecodeRecords(p, a.records, a.aborted, room, size)
	}
	if found.Err != nil {
		found.Err = fmt.Errorf("fetch %s/%d@%d: %w", p.Topic, p.Partition, p.Offset, found.Err)
	}
	found.HighWatermark, found.LastStable, found.LogStart = a.highWatermark, a.lastStable, a.logStart
	return found
}

// DecodeRecords decodes a record set, as far as there is room. It is part of an answer of size bytes.
func (w *Client) DecodeRecords(p FetchPartition, set []byte, aborted []abortedTransaction, room *Room,
	size int) Fetched {
	d := recordDecoder{
		TopicPartition: TopicPartition{p.Topic, p.Partition},
		from:           p.Offset,
		next:           p.Offset,
		aborts:         newAborts(aborted),
		inflate:        w.inflate,
		limits:         w.limits,
		room:           room,
		body:           size,
	}
	err := d.decode(set)
	return Fetched{
		Topic: p.Topic, Partition: p.Partition,
		Records: d.records, Costs: d.costs, Epochs: d.epochs, From: p.Offset, Next: d.next,
		Err: err,
	}
}
