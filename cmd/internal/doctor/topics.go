package doctor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/cluster"
)

var topicChecks = []Check{
	{
		Name: "kafka.topics", About: "the topics exist, and the cluster's ACLs show them", needs: needsKafka,
		run: topicsExist,
		Do: map[Level]string{Fault: "Create the topic, or correct its name in the config; firstseen creates none. " +
			"Where it is denied allow Read and Describe on it by an ACL. The other topics are read all the same.",
			Warning: "Nothing, where such topics are still to come; else correct the pattern, which has to match a name from " +
				"its first to its last character. Topics that an ACL hides from this client match none.",
			Info: "Nothing, where that is meant: a topic belongs to the first of the config's patterns that matches it, and to " +
				"none where its name is given."},
	},
	{
		Name: "kafka.recreated", About: "the topics are those that the positions were set in",
		needs: needsKafka | needsInbox, run: topicsRecreated,
		Do: map[Level]string{Fault: "If that was meant, set on_reset: restart for one start: " +
			"the new topic is read from its first message, and what was seen is a duplicate. " +
			"Positions in partitions that it does not have are forgotten then."},
	},
	{
		Name: "kafka.cut_off", About: "the partitions' logs are those that were read", needs: needsKafka | needsInbox,
		run: partitionsCutOff,
		Do: map[Level]string{Fault: "Kafka lost messages that were read, and others have their offsets now: " +
			"see unclean.leader.election.enable and min.insync.replicas. To have the others handled set on_reset: " +
			"restart for one start: they are read from where the logs part, and what was seen is a duplicate."},
	},
	{
		Name: "kafka.replication", About: "topics have replicas", needs: needsKafka, run: topicsReplicated,
		Do: map[Level]string{
			Warning: "Give the topic three replicas (kafka-reassign-partitions): " +
				"one broker's disk otherwise takes its messages with it.",
			Info: "With a single broker there is no more to be had; its disk is the only copy.",
		},
	},
	{
		Name: "kafka.min_insync", About: "writes wait for a second replica", needs: needsKafka, run: topicsInsync,
		Do: map[Level]string{Warning: "Set the topic's min.insync.replicas to 2 and have producers use acks=all: " +
			"a message that only one broker has can be lost after it was read, and its offset given to another."},
	},
	{
		Name: "kafka.cleanup", About: "no topic is compacted", needs: needsKafka, run: topicsCompacted,
		Do: map[Level]string{Warning: "Set cleanup.policy=delete. Compaction drops all but the last message of a " +
			"key, also those that were not read yet; with id: key all but a key's first would be duplicates."},
	},
	{
		Name: "kafka.id_retention", About: "IDs are kept longer than the topics keep messages", needs: needsKafka,
		run: topicsOutliveIDs,
		Do: map[Level]string{
			Fault: "Raise retention.ids (and retention.handlers) above the " +
				"topic's retention.ms and segment.ms together, or take it out: a message that is read again after " +
				"its ID is forgotten takes effect again.",
			Warning: "retention.force says that this is meant. A message that is read again after " +
				"its ID is forgotten takes effect again.",
		},
	},
	{
		Name: "kafka.dead_letter_topic", About: "the dead letter topic exists and takes what may die",
		needs: needsKafka,
		run:   deadLetterTopic,
		Do: map[Level]string{
			Fault: "Create the topic, with the max.message.bytes of the topics that are read; " +
				"until then dead letters wait in Postgres.",
			Warning: "Raise the dead letter topic's max.message.bytes to the largest of the topics that are read.",
		},
	},
}

func topicsExist(ctx context.Context, p *target, r *report) error {
	names, err := p.topicNames(ctx)
	if err != nil {
		return err
	}
	p.patternsMatch(names, r)
	if len(names) == 0 {
		return nil
	}
	facts, err := p.readFacts(ctx)
	if err != nil {
		return err
	}
	for _, f := range facts {
		switch {
		case f.Missing:
			r.fault("the topic %s does not exist", f.Name)
		case f.Partitions == 0 && errors.Is(f.Hidden, cluster.ErrNotAllowed):
			r.fault("the brokers deny the topic %s to this client", f.Name)
		}
	}
	r.ok("topics found: %d", len(facts))
	return nil
}

// patternsMatch finds patterns that match nothing, and topics that several of them match.
func (p *target) patternsMatch(names []string, r *report) {
	matched := map[string]bool{}
	for _, name := range names {
		several := p.Config.Several(name)
		if several != nil {
			r.info("the topic %s matches %s: the first has it", name, strings.Join(several, " and "))
		}
		for _, pattern := range several {
			matched[pattern] = true
		}
		if t, is := p.Config.TopicOf(name); is {
			matched[t.Pattern] = true
		}
	}
	for _, pattern := range p.Config.Patterns() {
		if !matched[pattern] {
			r.warn("no topic is read by the pattern %s", pattern)
		}
	}
}

func topicsRecreated(ctx context.Context, p *target, r *report) error {
	facts, err := p.facts(ctx)
	if err != nil {
		return err
	}
	positions, err := p.inbox.Positions(ctx, p.Config.Group)
	if err != nil {
		return err
	}
	for _, f := range facts {
		for _, at := range positions {
			if at.Topic == f.Name && at.TopicID != uuid.Nil && f.ID != uuid.Nil && at.TopicID != f.ID {
				r.fault("the topic %s was deleted and created again: it was %s and is %s", f.Name, at.TopicID, f.ID)
				break
			}
		}
	}
	r.ok("no topic was created again")
	return nil
}

// partitionsCutOff asks the partitions' leaders for the epochs that were read last. The positions are read before the
// ends.
func partitionsCutOff(ctx context.Context, p *target, r *report) error {
	positions, err := p.positionsByPartition(ctx)
	if err != nil {
		return err
	}
	offsets, err := p.offsets(ctx)
	for _, o := range offsets {
		position, known := positions[of(o)]
		if !known || position.Next <= 0 {
			continue
		}
		at, found, err := p.cluster.CutOff(ctx, position)
		switch {
		case err != nil:
			r.notChecked(err)
		case found:
			r.fault("%s/%d was read up to %d, under the leader epoch %d, and its log is another one from %d on",
				o.Topic, o.Partition, position.Next, *position.LeaderEpoch, at)
		case o.End >= 0 && o.End < position.Next:
			r.fault("%s/%d ends at %d, below its position %d", o.Topic, o.Partition, o.End, position.Next)
		}
	}
	r.ok("the logs are those that were read")
	return err
}

func topicsReplicated(ctx context.Context, p *target, r *report) error {
	facts, err := p.facts(ctx)
	for _, f := range facts {
		switch {
		case f.Missing || f.Replicas > 1:
		case p.settings.Brokers > 1:
			r.warn("a partition of the topic %s is on one of the %d brokers only", f.Name, p.settings.Brokers)
		default:
			r.info("the topic %s is on one broker, the only one", f.Name)
		}
	}
	r.ok("every topic has replicas")
	return err
}

func topicsInsync(ctx context.Context, p *target, r *report) error {
	return p.eachRead(ctx, r, func(f cluster.TopicFacts) {
		if f.Replicas > 1 && f.MinInsync < 2 {
			r.warn("the topic %s has %d replicas and min.insync.replicas %d", f.Name, f.Replicas, f.MinInsync)
		}
		r.ok("min.insync.replicas is 2 or more, or there is one replica")
	})
}

func topicsCompacted(ctx context.Context, p *target, r *report) error {
	return p.eachRead(ctx, r, func(f cluster.TopicFacts) {
		if strings.Contains(f.Cleanup, "compact") {
			r.warn("the topic %s has cleanup.policy %s", f.Name, f.Cleanup)
		}
		r.ok("cleanup.policy is delete")
	})
}

// topicsOutliveIDs holds how long a topic may bring a message again against how long its handlers' IDs are kept.
func topicsOutliveIDs(ctx context.Context, p *target, r *report) error {
	kept := p.Config.Retention
	err := p.eachRead(ctx, r, func(f cluster.TopicFacts) {
		for _, h := range p.handlersOf(f.Name) {
			ids, own := kept.Handlers[h]
			if !own {
				ids = kept.IDs
			}
			if ids <= 0 || f.Retention >= 0 && !strings.Contains(f.Cleanup, "compact") && ids > f.Retention+f.Segment {
				continue
			}
			level := Fault
			if kept.Force {
				level = Warning
			}
			r.add(level, "the IDs of the handler %s are kept for %s, and the topic %s may bring a message again %s",
				h, ids, f.Name, forHowLong(f))
		}
	})
	r.ok("IDs are kept longer, or for ever")
	return err
}

func forHowLong(f cluster.TopicFacts) string {
	if f.Retention < 0 || strings.Contains(f.Cleanup, "compact") {
		return "for ever"
	}
	return "for " + (f.Retention + f.Segment).Round(time.Second).String()
}

func (p *target) handlersOf(topic string) (names []string) {
	t, _ := p.Config.TopicOf(topic)
	for _, h := range t.Handlers {
		names = append(names, h.Name)
	}
	return names
}

func deadLetterTopic(ctx context.Context, p *target, r *report) error {
	if p.Config.DeadLetterTopic == "" {
		r.ok("no dead letter topic is configured")
		return nil
	}
	facts, err := p.facts(ctx)
	if err != nil {
		return err
	}
	dead := facts[len(facts)-1]
	switch {
	case dead.Missing:
		r.fault("the topic %s does not exist", dead.Name)
		return nil
	case dead.Hidden != nil:
		return dead.Hidden
	}
	err = p.eachRead(ctx, r, func(f cluster.TopicFacts) {
		if f.MaxMessageBytes > dead.MaxMessageBytes {
			r.warn("%s takes messages up to %d bytes and %s up to %d", dead.Name, dead.MaxMessageBytes, f.Name,
				f.MaxMessageBytes)
		}
	})
	r.ok("%s takes messages up to %d bytes", dead.Name, dead.MaxMessageBytes)
	return err
}
