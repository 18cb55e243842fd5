package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/internal/wire"
)

// TopicFacts describe a topic.
type TopicFacts struct {
	Name    string
	Missing bool      // there is no such topic; nothing below is set
	ID      uuid.UUID // zero where the brokers are older than 2.8
	// Partitions is their number, and Replicas the least that one of them has.
	Partitions, Replicas int
	// Hidden is why the settings below are unknown, and zero; nil where they are known. It matches ErrNotAllowed where
	// the ACLs are the cause.
	Hidden error
	// Retention is retention.ms: how long messages are kept at least; -1 for ever.
	Retention time.Duration
	// RetentionBytes is retention.bytes, of a partition; -1 for no limit.
	RetentionBytes int64
	// Segment is segment.ms: a message is deleted with its segment, which may be so much later.
	Segment time.Duration
	// Cleanup is cleanup.policy: "delete", "compact" or "compact,delete".
	Cleanup string
	// MinInsync is min.insync.replicas.
	MinInsync int
	// MaxMessageBytes is max.message.bytes, of a compressed batch.
	MaxMessageBytes int
}

var topicSettings = []string{"retention.ms", "retention.bytes", "segment.ms", "cleanup.policy",
	"min.insync.replicas", "max.message.bytes"}

// Topics tells of some topics, in their order. That ACLs keep a topic's settings from this client is no error, see
// TopicFacts.Hidden; that they keep the topic from it is, and matches ErrNotAllowed.
func (c *Cluster) Topics(ctx context.Context, names []string) ([]TopicFacts, error) {
	var found map[string]wire.Topic
	err := c.patiently(ctx, func() (err error) { found, err = c.wire.Metadata(ctx, names); return err })
	if err != nil {
		return nil, err
	}
	facts := make([]TopicFacts, len(names))
	var there []string
	var faults []error
	for i, name := range names {
		t := found[name]
		facts[i] = TopicFacts{Name: name, Missing: wire.IsGone(t.Err), ID: t.ID, Partitions: len(t.Partitions),
			Replicas: leastReplicas(t)}
		if t.Err == nil {
			there = append(there, name)
		} else if !facts[i].Missing {
			facts[i].Hidden = allowed(t.Err)
			faults = append(faults, fmt.Errorf("topic %s: %w", name, facts[i].Hidden))
		}
	}
	settings := c.settings(ctx, wire.AnyBroker, kmsg.ConfigResourceTypeTopic, there, topicSettings)
	for i := range facts {
		if s, ok := settings[facts[i].Name]; ok {
			facts[i].read(s)
		}
	}
	return facts, errors.Join(faults...)
}

// TopicNames asks for the names of all topics that this client may describe, but for Kafka's own.
func (c *Cluster) TopicNames(ctx context.Context) (names []string, err error) {
	err = c.patiently(ctx, func() (err error) { names, err = c.wire.TopicNames(ctx); return err })
	return names, err
}

// leastReplicas is the least that one of the topic's partitions has.
func leastReplicas(t wire.Topic) int {
	least := 0
	for i, p := range t.Partitions {
		if i == 0 || p.Replicas < least {
			least = p.Replicas
		}
	}
	return least
}

func (f *TopicFacts) read(s configs) {
	if f.Hidden = s.err; s.err != nil {
		return
	}
	f.Retention, f.Segment = s.millis("retention.ms"), s.millis("segment.ms")
	f.RetentionBytes = s.number("retention.bytes")
	f.MinInsync, f.MaxMessageBytes = int(s.number("min.insync.replicas")), int(s.number("max.message.bytes"))
	f.Cleanup = s.values["cleanup.policy"]
	f.Hidden = s.missing(topicSettings)
}

// configs are the settings of a topic or broker, or the error that hides them.
type configs struct {
	values map[string]string
	err    error
}

// missing names the settings that the broker did not tell.
func (s configs) missing(wanted []string) error {
	var left []string
	for _, name := range wanted {
		if _, ok := s.values[name]; !ok {
			left = append(left, name)
		}
	}
	if left == nil {
		return nil
	}
	return fmt.Errorf("the broker does not tell %s", strings.Join(left, ", "))
}

// number is 0 where the broker told none.
func (s configs) number(name string) int64 {
	n, _ := strconv.ParseInt(s.values[name], 10, 64)
	return n
}

// millis is a time that the broker counts in milliseconds; -1 stays -1, and so does what is longer than Go can say.
func (s configs) millis(name string) time.Duration {
	n := s.number(name)
	if d := time.Duration(n) * time.Millisecond; n >= 0 && d/time.Millisecond == time.Duration(n) {
		return d
	}
	return -1
}

// settings asks for settings of resources of one type. Every resource is in the map.
func (c *Cluster) settings(ctx context.Context, broker int32, kind kmsg.ConfigResourceType,
	names, settings []string) map[string]configs {
	found := make(map[string]configs, len(names))
	if len(names) == 0 {
		return found
	}
	answer := kmsg.NewDescribeConfigsResponse()
	err := c.patiently(ctx, func() error {
		return c.wire.Ask(ctx,
			wire.Call{Broker: broker, Request: configsRequest(kind, names, settings), Min: 0, Max: 4}, &answer)
	})
	for _, name := range names {
		found[name] = configs{err: cmp.Or(err, wire.ErrLeftOut)}
	}
	for i := range answer.Resources {
		r := &answer.Resources[i]
		found[r.ResourceName] = readConfigs(r)
	}
	return found
}

func configsRequest(kind kmsg.ConfigResourceType, names, settings []string) *kmsg.DescribeConfigsRequest {
	request := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName, resource.ConfigNames = kind, name, slices.Clone(settings)
		request.Resources = append(request.Resources, resource)
	}
	return request
}

func readConfigs(r *kmsg.DescribeConfigsResponseResource) configs {
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return configs{err: allowed(err)}
	}
	values := make(map[string]string, len(r.Configs))
	for _, c := range r.Configs {
		if c.Value != nil {
			values[c.Name] = *c.Value
		}
	}
	return configs{values: values}
}
