// Package sender sends messages of an outbox to Kafka. In comes a run of messages, from a relay of handlers/outbox; out
// come records that all replicas in sync have, each under its message's ID, and for each message that has not become
// one the reason.
package sender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/internal/produce"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// HeaderID is the header that a record has its message's ID in.
const HeaderID = "message-id"

// Sender sends to the topics that messages name. It is a [handlers.Sender], and safe for concurrent use as long as the
// messages of a key are sent one after the other, as relays do.
//
// A record goes where Kafka's own producers put its key, and one without a key anywhere; null and empty are kept apart.
// It is sent once all replicas in sync have it (acks=all). Of one partition there is one request at a time, and behind
// one that failed there is none of the same call, so that no record overtakes an earlier one of its key. What an error
// means for its message:
//
//   - that the broker will never take the record, as one that is too large, or its topic's name, is
//     [handlers.Permanent]; it takes no other along;
//   - that the topic is missing, or not allowed, or its policy is against it, counts an attempt: it may be mended while
//     the message has some left;
//   - everything else is [handlers.Unavailable], an outage, and counts none.
type Sender struct {
	cfg       consumer.Config
	transport *kafka.Transport
	wire      *wire.Client
	producer  *produce.Producer

	mu     sync.Mutex
	topics map[string]topic
}

var _ handlers.Sender = (*Sender)(nil)

// topic is the cluster's answer for one, kept for a MetadataInterval.
type topic struct {
	partitions []int
	err        error
	at         time.Time
}

const (
	// maxRun caps a request's keys, values and headers. Brokers refuse batches of a mebibyte by default.
	maxRun = 512 << 10
	// maxTries limits the tries without progress of a partition's records, where the errors pass, as when its leader
	// moves.
	maxTries = 5
)

// New checks the connection. It talks to no broker yet, and creates no topic ever.
func New(c consumer.Connection) (*Sender, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("sender to kafka: %w", err)
	}
	cfg := consumer.Config{Connection: c}.WithDefaults()
	transport := cfg.Transport()
	return &Sender{cfg: cfg, transport: transport, topics: map[string]topic{},
		wire:     wire.New(transport, cfg.Brokers, cfg.ClientID, cfg.RequestTimeout),
		producer: &produce.Producer{Transport: transport, Brokers: cfg.Brokers}}, nil
}

// Close closes the connections. Nothing may be sent any more.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Send sends messages of one topic or several, each partition's by itself: see [handlers.Sender].
func (s *Sender) Send(ctx context.Context, ms []dedup.Message) []error {
	errs := make([]error, len(ms))
	topics, runs := map[string]topic{}, map[wire.TopicPartition][]int{}
	for i := range ms {
		name := ms[i].Topic
		t, asked := topics[name]
		if !asked {
			t.partitions, t.err = s.partitions(ctx, name)
			topics[name] = t
		}
		if t.err != nil {
			errs[i] = meant(t.err)
			continue
		}
		to := wire.TopicPartition{Topic: name, Partition: int32(partition(&ms[i], t.partitions))} //nolint:gosec // Kafka's
		runs[to] = append(runs[to], i)
	}
	var sending sync.WaitGroup
	for to, places := range runs {
		sending.Go(func() { s.sendTo(ctx, to, ms, places, errs) })
	}
	sending.Wait()
	return errs
}

// partition keeps keys together. What has none goes by its ID, so that it goes to the same one again.
func partition(m *dedup.Message, ids []int) int {
	if m.Key == nil {
		return produce.Partition(m.ID[:], ids)
	}
	return produce.Partition(m.Key, ids)
}

// sendTo sends the messages of one partition that places names, and sets the errors of those that are not sent.
func (s *Sender) sendTo(ctx context.Context, to wire.TopicPartition, ms []dedup.Message, places []int, errs []error) {
	left := places
	settled := func(int) { left = left[1:] }
	run := produce.Run{Topic: to.Topic, Partition: int(to.Partition), Sent: settled,
		Record: func(place int) kafka.Record { return record(&ms[place]) },
		Refused: func(_ context.Context, place int, err error) error {
			errs[place] = handlers.Permanent(err)
			settled(place)
			return nil
		}}
	retry := wait.NewBackoff()
	for try := 1; len(left) > 0; try++ {
		before := len(left)
		err := s.produce(ctx, run, ms, left)
		if len(left) < before {
			try, retry = 0, wait.NewBackoff()
		}
		if err == nil {
			continue
		}
		s.forget(to.Topic)
		if try < maxTries && passes(err) && wait.Sleep(ctx, retry.Next()) {
			continue
		}
		for _, place := range left {
			errs[place] = meant(err)
		}
		return
	}
}

// produce sends what fits in one request.
func (s *Sender) produce(ctx context.Context, run produce.Run, ms []dedup.Message, places []int) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	size := 0
	for i, place := range places {
		if size += ms[place].Size(); size > maxRun && i > 0 {
			places = places[:i]
			break
		}
	}
	return s.producer.Produce(ctx, run, slices.Clone(places))
}

// meant marks an error by its meaning for a message: see Sender.
func meant(err error) error {
	var told *kerr.Error
	var said kafka.Error
	code := int16(0)
	if errors.As(err, &told) {
		code = told.Code
	} else if errors.As(err, &said) {
		code = int16(said)
		err = fmt.Errorf("%s: %w", err.Error(), kerr.ErrorForCode(code)) // kafka-go's own passes for one of the network
	}
	switch code {
	case kerr.InvalidTopicException.Code:
		return handlers.Permanent(err)
	case kerr.UnknownTopicOrPartition.Code, kerr.TopicAuthorizationFailed.Code, kerr.PolicyViolation.Code:
		return err
	}
	return handlers.Unavailable(err)
}

// passes says whether a broker is not ready yet, and will be soon.
func passes(err error) bool {
	var said kafka.Error
	return errors.As(err, &said) && said.Temporary()
}

// partitions are a topic's. No request of ours creates it.
func (s *Sender) partitions(ctx context.Context, name string) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.topics[name]; known.partitions != nil && time.Since(known.at) < s.cfg.MetadataInterval {
		return known.partitions, nil
	}
	found, err := s.wire.Metadata(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	t := found[name]
	if t.Err != nil || len(t.Partitions) == 0 {
		return nil, fmt.Errorf("topic %s: %w", name, cmp.Or(t.Err, error(kerr.LeaderNotAvailable)))
	}
	now := topic{at: time.Now()}
	for _, p := range t.Partitions {
		now.partitions = append(now.partitions, int(p.ID))
	}
	s.topics[name] = now
	return now.partitions, nil
}

// forget has a topic's partitions asked for again.
func (s *Sender) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.topics, name)
}

// record is a message byte for byte, under its ID. Its timestamp is the time of sending: by an older one the topic's
// retention might delete it at once.
func record(m *dedup.Message) kafka.Record {
	headers := make([]kafka.Header, 0, len(m.Headers)+1)
	for _, h := range m.Headers {
		headers = append(headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	headers = append(headers, kafka.Header{Key: HeaderID, Value: []byte(m.ID.String())})
	return kafka.Record{Time: time.Now(), Key: produce.Content(m.Key), Value: produce.Content(m.Value), Headers: headers}
}
