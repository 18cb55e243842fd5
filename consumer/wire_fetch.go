package consumer

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

// fetchPartition asks for one partition's records from an offset on.
type fetchPartition struct {
	topic       string
	topicID     uuid.UUID // zero where the broker names none
	partition   int32
	leaderEpoch int32 // as metadata told it, -1 where it told none
	offset      int64
	lastEpoch   *int32 // the leader epoch of the last message before offset; nil: not known
	// maxBytes is where the broker stops adding batches of this partition. The first batch of a
	// response comes whole however large it is (KIP-74).
	maxBytes int32
}

// fetchOptions are those of one request.
type fetchOptions struct {
	maxWait            time.Duration // how long the broker may wait for minBytes
	minBytes, maxBytes int32         // of the response, before decompression
	// room is what the response and its records take up. What does not fit is left for a later fetch. Default none to
	// speak of.
	room *room
}

// fetchedPartition is the answer for one partition.
type fetchedPartition struct {
	topic     string
	partition int32
	// records are those that read_committed shows, in the order of their offsets. They share memory
	// with each other, which is what costs are about.
	records []*fetchedRecord
	costs   costs
	// epochs are the leader epochs of what was decoded, records or not.
	epochs epochs
	// from is the offset that was asked for.
	from int64
	// next is the offset to fetch next: past control records, aborted data and gaps of compaction. It
	// may move on where there are no records, and equals the offset asked for where err is set.
	next int64
	// highWatermark, lastStable and logStart are -1 where the broker tells none.
	highWatermark, lastStable, logStart int64
	// err is Kafka's error for the partition (package kerr), a *divergedError, or wraps kerr.CorruptMessage,
	// kerr.MessageTooLarge or kerr.UnsupportedForMessageFormat where the batch at next cannot be decoded.
	err error
}

// errThrottled says that a broker has answered nothing, to have its client slow down.
var errThrottled = errors.New("throttled")

// fetch asks the leader of some partitions for records, read_committed, outside of a fetch session. It
// answers for each part in the order of parts. Where all topic IDs are known a topic that was deleted
// and created again gives UnknownTopicID instead of another topic's records (KIP-516).
func (w *wire) fetch(ctx context.Context, leader int32, parts []fetchPartition, opts fetchOptions) ([]fetchedPartition, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	if opts.room == nil {
		opts.room = newFixedRoom(4 * w.limits.batchBytes)
	}
	request := fetchRequest(parts, opts)
	body, err := w.do(ctx, call{
		broker: leader, request: request, min: fetchOldest, max: newestFetch(parts),
		wait: opts.maxWait, limit: int(opts.maxBytes) + w.limits.batchBytes, allocate: opts.room.allocate,
	})
	if err != nil {
		return nil, fmt.Errorf("fetch %d partitions from broker %d: %w", len(parts), leader, err)
	}
	answer, err := readFetchResponse(body, request.Version)
	if err != nil {
		return nil, fmt.Errorf("fetch %d partitions from broker %d: %w", len(parts), leader, err)
	}
	return w.decode(parts, answer, opts.room, len(body)), nil
}

// newestFetch is the highest version that can name the topics of all parts.
func newestFetch(parts []fetchPartition) int16 {
	for _, p := range parts {
		if p.topicID == uuid.Nil {
			return fetchByName
		}
	}
	return fetchByID
}

// fetchRequest carries both names and IDs of topics; the version decides which are sent.
func fetchRequest(parts []fetchPartition, opts fetchOptions) *kmsg.FetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis = int32(min(opts.maxWait.Milliseconds(), math.MaxInt32))
	request.MinBytes, request.MaxBytes = opts.minBytes, opts.maxBytes
	request.IsolationLevel = 1
	type named struct {
		topic string
		id    uuid.UUID
	}
	place := make(map[named]int)
	for _, p := range parts {
		i, ok := place[named{p.topic, p.topicID}]
		if !ok {
			i = len(request.Topics)
			place[named{p.topic, p.topicID}] = i
			topic := kmsg.NewFetchRequestTopic()
			topic.Topic, topic.TopicID = p.topic, p.topicID
			request.Topics = append(request.Topics, topic)
		}
		partition := kmsg.NewFetchRequestTopicPartition()
		partition.Partition, partition.CurrentLeaderEpoch = p.partition, p.leaderEpoch
		partition.FetchOffset, partition.PartitionMaxBytes = p.offset, p.maxBytes
		if p.lastEpoch != nil {
			partition.LastFetchedEpoch = *p.lastEpoch
		}
		request.Topics[i].Partitions = append(request.Topics[i].Partitions, partition)
	}
	return request
}

// answerKey is what a response names a partition by: by its topic's ID from version 13 on.
type answerKey struct {
	topic     string
	topicID   uuid.UUID
	partition int32
}

func keyOf(p fetchPartition, version int16) answerKey {
	if version >= fetchByID {
		return answerKey{topicID: p.topicID, partition: p.partition}
	}
	return answerKey{topic: p.topic, partition: p.partition}
}

// bytes is what keeping the records costs.
func (f *fetchedPartition) bytes() int { return f.costs.total() }

// decode matches the answers to the parts. A broker that throttles a client answers nothing at all, with
// no error, and holds back its next request itself (KIP-219).
func (w *wire) decode(parts []fetchPartition, answer fetchResponse, room *room, size int) []fetchedPartition {
	out := make([]fetchedPartition, len(parts))
	place := make(map[answerKey]int, len(parts))
	for i, p := range parts {
		place[keyOf(p, answer.version)] = i
		out[i] = fetchedPartition{topic: p.topic, partition: p.partition, from: p.offset, next: p.offset,
			highWatermark: -1, lastStable: -1, logStart: -1}
		if !answer.throttled {
			out[i].err = fmt.Errorf("fetch %s/%d@%d: %w", p.topic, p.partition, p.offset, errLeftOut)
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
func (w *wire) decodePartition(p fetchPartition, a partitionResponse, room *room, size int) fetchedPartition {
	found := fetchedPartition{topic: p.topic, partition: p.partition, from: p.offset, next: p.offset,
		err: kerr.ErrorForCode(a.errorCode)}
	switch {
	case found.err != nil:
	case a.diverged != nil:
		found.err = a.diverged
	default:
		found = w.decodeRecords(p, a.records, a.aborted, room, size)
	}
	if found.err != nil {
		found.err = fmt.Errorf("fetch %s/%d@%d: %w", p.topic, p.partition, p.offset, found.err)
	}
	found.highWatermark, found.lastStable, found.logStart = a.highWatermark, a.lastStable, a.logStart
	return found
}

// decodeRecords decodes a record set, as far as there is room. It is part of an answer of size bytes.
func (w *wire) decodeRecords(p fetchPartition, set []byte, aborted []abortedTransaction, room *room, size int) fetchedPartition {
	d := recordDecoder{
		topicPartition: topicPartition{p.topic, p.partition},
		from:           p.offset,
		next:           p.offset,
		aborts:         newAborts(aborted),
		inflate:        w.inflate,
		limits:         w.limits,
		room:           room,
		body:           size,
	}
	err := d.decode(set)
	return fetchedPartition{
		topic: p.topic, partition: p.partition,
		records: d.records, costs: d.costs, epochs: d.epochs, from: p.offset, next: d.next,
		err: err,
	}
}
