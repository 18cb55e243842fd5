package retention

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/wait"
)

// clocks bounds how far the clocks of producers may be ahead: Kafka refuses messages that are further, by default
// (message.timestamp.after.max.ms).
const clocks = time.Hour

// facts are the guard's grounds: how far each consumer of the schema has processed each partition, and what the topics
// hold that may come again. All consumers count, for any of them may use the inbox.
type facts struct {
	reaches []operate.Position
	offsets map[place]cluster.GroupOffset
	topics  map[string]cluster.TopicFacts
	oldest  map[string]map[int32]time.Time
	// faults say what could not be found out.
	faults []Refusal
}

type place struct {
	consumer, topic string
	partition       int32
}

// pollInterval is the time between two looks at what is committed.
const pollInterval = 250 * time.Millisecond

// gather asks Postgres, and then Kafka until commits have come up to where Postgres was, or settle is over.
func (k *Keeper) gather(ctx context.Context, settle time.Duration) (*facts, error) {
	f := &facts{}
	var err error
	if f.reaches, err = k.Inbox.AllPositions(ctx, 0); err != nil {
		return nil, err
	}
	f.reaches = slices.DeleteFunc(f.reaches, func(p operate.Position) bool { return !p.Counts() })
	if k.Cluster == nil {
		f.withoutKafka()
		return f, nil
	}
	settled := time.Now().Add(settle)
	for {
		k.gatherOffsets(ctx, f)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if len(f.againstAll()) == 0 || time.Now().After(settled) {
			break
		}
		wait.Sleep(ctx, pollInterval)
	}
	k.gatherTopics(ctx, f)
	return f, ctx.Err()
}

// withoutKafka says that nobody can be asked what the topics hold that were read.
func (f *facts) withoutKafka() {
	for _, r := range f.reaches {
		if slices.ContainsFunc(f.faults, func(o Refusal) bool { return o.Key == offsetsOf(r.Consumer) }) {
			continue
		}
		f.fault(offsetsOf(r.Consumer), "consumer %s has read topics, and there are no brokers (kafka.brokers) to ask what "+
			"these hold"+goneForGood, r.Consumer)
	}
}

func (k *Keeper) gatherOffsets(ctx context.Context, f *facts) {
	f.offsets, f.faults = map[place]cluster.GroupOffset{}, nil
	for name, topics := range f.topicsByConsumer() {
		offsets, err := k.Cluster.Offsets(ctx, name, topics)
		if err != nil {
			f.fault(offsetsOf(name), "where consumer %s stands could not be found out: %v", name, err)
		}
		for _, o := range offsets {
			f.offsets[place{name, o.Topic, o.Partition}] = o
		}
	}
}

func (k *Keeper) gatherTopics(ctx context.Context, f *facts) {
	f.topics, f.oldest = map[string]cluster.TopicFacts{}, map[string]map[int32]time.Time{}
	names := f.topicNames()
	found, err := k.Cluster.Topics(ctx, names)
	if err != nil {
		f.fault("topics", "how long the topics keep messages could not be found out: %v", err)
	}
	for _, t := range found {
		f.topics[t.Name] = t
		if t.Missing {
			continue
		}
		if f.oldest[t.Name], err = k.Cluster.Oldest(ctx, t.Name); err != nil {
			f.fault("oldest of "+t.Name, "the oldest messages of topic %s could not be found out: %v", t.Name, err)
		}
	}
}

func (f *facts) fault(key, format string, args ...any) {
	f.faults = append(f.faults, refusal(key, format, args...))
}

func refusal(key, format string, args ...any) Refusal {
	return Refusal{Key: key, Text: strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")}
}

// topicsByConsumer leaves replays out: they commit nothing to Kafka.
func (f *facts) topicsByConsumer() map[string][]string {
	topics := map[string][]string{}
	for _, r := range f.reaches {
		if !r.Replay && !slices.Contains(topics[r.Consumer], r.Topic) {
			topics[r.Consumer] = append(topics[r.Consumer], r.Topic)
		}
	}
	return topics
}

func (f *facts) topicNames() (names []string) {
	for _, r := range f.reaches {
		names = append(names, r.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// offsetsOf is the key of the fault that a consumer's offsets could not be found out.
func offsetsOf(consumer string) string { return "offsets of " + consumer }

// againstAll are the reasons that hold whatever the age: a consumer that starts again would be given messages that it
// has processed. One a consumer and topic is told, and of a consumer that could not be asked about only that.
func (f *facts) againstAll() []Refusal {
	refusals := slices.Clone(f.faults)
	for _, r := range f.reaches {
		if one, against := f.mayComeAgain(r); against && !slices.ContainsFunc(refusals,
			func(o Refusal) bool { return o.Key == one.Key || o.Key == offsetsOf(r.Consumer) }) {
			refusals = append(refusals, one)
		}
	}
	return refusals
}

const goneForGood = "; if it is gone for good, delete its rows from the table positions"

func (f *facts) mayComeAgain(r operate.Position) (Refusal, bool) {
	at := fmt.Sprintf("%s/%d", r.Topic, r.Partition)
	key := r.Consumer + " " + r.Topic
	if r.Replay {
		return refusal(key, "replay %s of %s is going on: it is at offset %d and ends at %d; to give it up, "+
			"cancel its job or, where it is a command's, begin it anew (--fresh) from latest", r.Consumer, at, r.Next, r.ReplayTo), r.Next < r.ReplayTo
	}
	o, known := f.offsets[place{r.Consumer, r.Topic, r.Partition}]
	switch {
	case !known:
		return refusal(key, "consumer %s has processed %s up to offset %d, and this cluster has no such partition: "+
			"a topic that was made anew forgets it when it is restarted (on_reset: restart)"+goneForGood,
			r.Consumer, at, r.Next), true
	case o.Committed >= r.Next, o.Earliest >= r.Next: // nothing below its position would be read, or is left
		return Refusal{}, false
	case o.Committed < 0:
		return refusal(key, "consumer %s has processed %s up to offset %d and has committed no offset to Kafka: "+
			"it would be given those messages again"+goneForGood, r.Consumer, at, r.Next), true
	}
	return refusal(key, "consumer %s has processed %s up to offset %d and has committed %d to Kafka: "+
		"it would be given what is between again"+goneForGood, r.Consumer, at, r.Next, o.Committed), true
}

// against are the reasons against forgetting IDs of that age: the topics still hold messages as old, for a replay, a
// reset, or a new consumer of the inbox.
func (f *facts) against(age time.Duration, before time.Time) (refusals []Refusal) {
	for _, name := range f.topicNames() {
		t := f.topics[name]
		switch least := t.Retention + t.Segment + clocks; {
		case t.Missing, t.Name == "": // said by againstAll
			continue
		case t.Hidden != nil:
			refusals = append(refusals,
				refusal("hidden "+name, "how long topic %s keeps messages is not known: %v", name, t.Hidden))
			continue
		case t.Cleanup != "delete":
			refusals = append(refusals, refusal("cleanup "+name, "topic %s keeps messages whatever their age "+
				"(cleanup.policy is %s): it can always be read again", name, t.Cleanup))
			continue
		case t.Retention < 0:
			refusals = append(refusals, refusal("retention "+name,
				"topic %s keeps messages for ever (retention.ms is -1): it can always be read again", name))
			continue
		case age <= least:
			refusals = append(refusals, refusal("age "+name, "topic %s may hold messages for %s (retention.ms %s, "+
				"segment.ms %s, and an hour for clocks), and IDs are kept for %s only: keep them for longer",
				name, days(least), days(t.Retention), days(t.Segment), days(age)))
			continue
		}
		refusals = append(refusals, f.stillThere(name, before)...)
	}
	return refusals
}

// stillThere holds the oldest messages that are left against the time: a broker may be late with its deletes, and
// deletes nothing for its age where a timestamp is ahead of all clocks.
func (f *facts) stillThere(name string, before time.Time) []Refusal {
	for partition, oldest := range f.oldest[name] {
		if oldest.After(time.Now().Add(clocks)) {
			return []Refusal{refusal("oldest "+name, "the first message of topic %s (in partition %d) has a "+
				"timestamp in the future, so how old what the topic holds is can't be known, nor does Kafka delete "+
				"it for its age: delete it by hand (kafka-delete-records)", name, partition)}
		}
		if !oldest.After(before.Add(clocks)) {
			return []Refusal{refusal("oldest "+name, "topic %s still holds a message of %s (in partition %d), "+
				"and IDs first seen before %s would go: wait until Kafka has deleted it",
				name, oldest.UTC().Format(time.DateTime), partition, before.UTC().Format(time.DateTime))}
		}
	}
	return nil
}

// days writes a duration in days where it is whole ones.
func days(d time.Duration) string {
	if d > 0 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return d.String()
}
