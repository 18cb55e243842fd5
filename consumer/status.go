package consumer

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
)

// State is a Consumer's phase of life.
type State string

// The states, in their order; after a drain comes Joining again, or Ended.
const (
	Starting  State = "starting"  // Run was not called, or no topic has been found yet
	Joining   State = "joining"   // the group has not assigned partitions
	Consuming State = "consuming" // partitions are assigned, though there may be none
	Draining  State = "draining"  // partitions are being given up; open batches are finished
	Ended     State = "ended"     // Run has returned, or is about to
)

// Status describes a Consumer as of one moment.
type Status struct {
	State State
	Since time.Time // of the state
	// KafkaSince is the time since which no broker has answered any request. Zero: the last request was answered, or
	// none was made.
	KafkaSince time.Time
	// Generation is the group's, of the partitions; 0 while there are none.
	Generation int32
	// Partitions are those assigned to this member, sorted by topic and partition.
	Partitions []PartitionStatus
	// Rebalances counts the assignments since the start.
	Rebalances int64
	// Pauses are the operators' pauses in the inbox, as last looked up. Nobody may change the slice.
	Pauses []dedup.Pause
	// Holds are the waits of this process, the oldest first: of partitions, topics, handlers and the group, each with
	// its cause.
	Holds []holds.Hold
	// Topics are all that the config names and those that its patterns match, sorted.
	Topics []TopicStatus
}

// TopicStatus says whether a topic can be read, whoever has its partitions.
type TopicStatus struct {
	Name string
	// Held says why it can't: topic_missing, topic_denied or topic_unreadable; empty: it can, as far as is known.
	Held      string
	HeldSince time.Time // zero: not held
}

// PartitionStatus describes one partition of this member.
type PartitionStatus struct {
	Topic     string
	Partition int32

	Next          int64 // the offset to process next; -1: the position is not acquired yet
	Committed     int64 // the offset committed to Kafka; -1: none, or not looked up yet
	End           int64 // the last stable offset, as the broker last told it; -1: not known yet
	HighWatermark int64 // the partition's end, open transactions included; -1: not known yet

	// Lag counts the offsets between Next and End. What lies beyond End waits for a producer's open transaction, and
	// is nobody's lag. -1: not known.
	Lag int64
	// LagTime is the age of the message at Next, by its timestamp. 0: nothing waits, or it has not been fetched.
	LagTime time.Duration
	// CaughtUp says that everything below End is processed. Transaction markers and gaps of compaction are no
	// messages.
	CaughtUp bool

	// Held says why the partition waits, by one of the codes Held...; empty: it does not.
	Held      string
	HeldSince time.Time // zero: not held
	// Paused says that an operator has paused the partition or its topic.
	Paused bool
	// OpenTransaction is the time since which a producer's open transaction is known to hold End back. Zero: none
	// does.
	OpenTransaction time.Time
}

// Status tells how the consumer is: before, during and after Run. It asks nobody and waits for nothing. It is safe for
// concurrent use.
func (c *Consumer) Status() Status {
	status, s := c.life.status()
	status.KafkaSince, status.Pauses, status.Holds = c.wire.SilentSince(), c.processor.Pauses(), c.holds.List()
	status.Topics = c.topicStatus(status.Holds)
	if s == nil {
		return status
	}
	status.Generation = s.generation.ID
	status.Partitions = make([]PartitionStatus, 0, len(s.partitions))
	for tp, p := range s.partitions {
		next, committed := s.offsets.of(tp)
		st := partitionStatus(p, next, committed, time.Now())
		st.Paused, _ = c.processor.Paused(tp.Topic, tp.Partition)
		status.Partitions = append(status.Partitions, st)
	}
	slices.SortFunc(status.Partitions, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return status
}

// topicStatus tells of the topics that are to be read. That one is denied may show only where it is fetched.
func (c *Consumer) topicStatus(list []holds.Hold) []TopicStatus {
	topics := []TopicStatus{}
	for _, name := range c.topics.names() {
		t := TopicStatus{Name: name}
		if i := slices.IndexFunc(list, func(h holds.Hold) bool {
			return h.Kind == holds.TopicKind && h.Name == name || h.Code == holds.Denied &&
				h.Kind == holds.PartitionKind && topicOf(h.Name) == name
		}); i >= 0 {
			t.Held, t.HeldSince = list[i].Code, list[i].Since
		}
		topics = append(topics, t)
	}
	return topics
}

func topicOf(partition string) string { return partition[:strings.LastIndexByte(partition, '/')] }

// partitionStatus is a partition's, given its position and the committed offset.
func partitionStatus(p *fetch.Partition, next, committed int64, now time.Time) PartitionStatus {
	at := p.Facts()
	st := PartitionStatus{Topic: p.Topic, Partition: p.Partition, Next: next, Committed: committed,
		End: at.LastStable, HighWatermark: at.HighWatermark, Lag: -1, OpenTransaction: at.OpenTransaction}
	if next >= 0 && at.LastStable >= 0 {
		st.Lag = max(0, at.LastStable-next)
		st.CaughtUp = st.Lag == 0
	}
	if at.Oldest.UnixMilli() > 0 && !st.CaughtUp { // before 1970: it has none
		st.LagTime = max(0, now.Sub(at.Oldest))
	}
	if h := p.Held(); h != nil {
		st.Held, st.HeldSince = h.Code, h.Since
	}
	return st
}

type life struct {
	mu         sync.Mutex
	state      State
	since      time.Time
	session    *session // nil: no partitions are assigned
	rebalances int64
}

func (l *life) status() (Status, *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{State: l.state, Since: l.since, Rebalances: l.rebalances}, l.session
}

// enter begins a state in which no partitions are assigned.
func (l *life) enter(state State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session = nil; l.state != state {
		l.state, l.since = state, time.Now()
	}
}

// assigned begins to consume a session's partitions.
func (l *life) assigned(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.since, l.session = Consuming, time.Now(), s
	l.rebalances++
}

// drains says that a session gives its partitions up. It may be told late, when something else has begun.
func (l *life) drains(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == s && l.state == Consuming {
		l.state, l.since = Draining, time.Now()
	}
}
