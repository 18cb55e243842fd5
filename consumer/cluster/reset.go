package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Reset is the plan to move a group without members to another place of a topic, in Postgres and in Kafka. Make it
// with PlanReset.
type Reset struct {
	Group, Topic string
	TopicID      uuid.UUID // zero where the brokers are older than 2.8
	Partitions   []ResetPartition
}

// ResetPartition is one partition's part of a Reset.
type ResetPartition struct {
	Partition int32
	// Position is the group's in Postgres, and Committed its offset in Kafka; -1 where there is none.
	Position, Committed int64
	// From is the next offset without the reset, the lower of the two; -1 where neither is known.
	From int64
	// To is the next offset after it.
	To int64
	// Skipped counts the offsets that are left and would never be handled, and Again those that would be read again,
	// in which what was seen is a duplicate.
	Skipped, Again int64
}

// Skipped counts the offsets of all partitions that would never be handled.
func (r *Reset) Skipped() (n int64) {
	for _, p := range r.Partitions {
		n += p.Skipped
	}
	return n
}

// PlanReset finds out what moving a group to a place would mean, and changes nothing. partitions nil: all. An offset
// beyond what a partition holds is taken for the nearest that it does. It is an error where the topic or a partition
// does not exist, and ErrGroupInUse where the group has members.
func (c *Cluster) PlanReset(ctx context.Context, store *dedup.Store, group, topic string,
	to replay.Place, partitions []int32) (*Reset, error) {
	plan, err := c.planReset(ctx, store, group, topic, to, partitions)
	if err != nil {
		return nil, fmt.Errorf("reset group %s in topic %s: %w", group, topic, err)
	}
	return plan, nil
}

func (c *Cluster) planReset(ctx context.Context, store *dedup.Store, group, topic string,
	to replay.Place, partitions []int32) (*Reset, error) {
	if err := c.requireEmpty(ctx, group); err != nil {
		return nil, err
	}
	target, err := c.find(ctx, topic, to)
	if err != nil {
		return nil, err
	}
	id, err := c.topicID(ctx, topic)
	if err != nil {
		return nil, err
	}
	stands, _, err := operate.Of(store).PositionsIn(ctx, group, topic, id)
	if err != nil {
		return nil, err
	}
	offsets, err := c.Offsets(ctx, group, []string{topic})
	if err != nil {
		return nil, err
	}
	known, err := store.KnowsTopic(ctx, group, topic)
	if err != nil {
		return nil, err
	}
	if !known && partitions != nil {
		return nil, errors.New("the group has no position in it yet: " +
			"reset all partitions, or have them begun by a first start")
	}
	plan := &Reset{Group: group, Topic: topic, TopicID: id}
	for _, at := range offsets {
		if partitions == nil || slices.Contains(partitions, at.Partition) {
			plan.Partitions = append(plan.Partitions, resetOf(at, orNone(stands, at.Partition), target[at.Partition]))
		}
	}
	return plan, missing(partitions, offsets)
}

func resetOf(at GroupOffset, position, to int64) ResetPartition {
	p := ResetPartition{Partition: at.Partition, Position: position, Committed: at.Committed,
		From: max(position, at.Committed)}
	if position >= 0 && at.Committed >= 0 {
		p.From = min(position, at.Committed)
	}
	p.To = max(at.Earliest, min(to, at.Stable))
	if p.From >= 0 {
		p.Skipped = max(0, p.To-max(p.From, at.Earliest))
		p.Again = max(0, min(p.From, at.Stable)-p.To)
	}
	return p
}

// missing names the partitions that are not there.
func missing(partitions []int32, found []GroupOffset) error {
	var faults []error
	for _, id := range partitions {
		if !slices.ContainsFunc(found, func(o GroupOffset) bool { return o.Partition == id }) {
			faults = append(faults, fmt.Errorf("partition %d does not exist", id))
		}
	}
	return errors.Join(faults...)
}

// find is Reader.Find with an end.
func (c *Cluster) find(ctx context.Context, topic string, place replay.Place) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*c.cfg.RequestTimeout)
	defer cancel()
	r, err := replay.NewReader(replay.ReaderConfig{Connection: c.cfg.Connection,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Find(ctx, topic, place)
}

func (c *Cluster) topicID(ctx context.Context, topic string) (id uuid.UUID, err error) {
	err = c.patiently(ctx, func() error {
		found, err := c.wire.Metadata(ctx, []string{topic})
		id = found[topic].ID
		return cmp.Or(err, found[topic].Err)
	})
	return id, err
}

// Reset moves the group: first its positions in Postgres, with a note in the audit, then its offsets in Kafka. A
// group goes on at the lower of the two, so that where only the first is done nothing is skipped; doing it again
// repairs that. Whoever still owns one of the positions is fenced. It is ErrGroupInUse where the group has members,
// and nothing is moved then; a member that comes in between may have it fail after the first step.
func (c *Cluster) Reset(ctx context.Context, store *dedup.Store, plan *Reset, by operate.By) error {
	next := make(map[int32]int64, len(plan.Partitions))
	for _, p := range plan.Partitions {
		next[p.Partition] = p.To
	}
	if err := c.requireEmpty(ctx, plan.Group); err != nil {
		return fmt.Errorf("reset group %s in topic %s: %w", plan.Group, plan.Topic, err)
	}
	if err := operate.Of(store).ResetPositions(ctx, plan.Group, plan.Topic, plan.TopicID, next, by); err != nil {
		return err
	}
	if err := c.CommitOffsets(ctx, plan.Group, plan.Topic, next); err != nil {
		return fmt.Errorf("the positions in Postgres are moved and the offsets in Kafka are not; "+
			"the group skips nothing, and goes on at the lower of the two; reset it again: %w", err)
	}
	return nil
}

// requireEmpty says who the members of a group are.
func (c *Cluster) requireEmpty(ctx context.Context, group string) error {
	g, err := c.Group(ctx, group)
	if err != nil || len(g.Members) == 0 {
		return err
	}
	return fmt.Errorf("%w, stop them first: %s", ErrGroupInUse, membersText(g.Members))
}

func membersText(members []Member) string {
	texts := make([]string, len(members))
	for i, m := range members {
		count := map[string]int{}
		for _, p := range m.Partitions {
			count[p.Topic]++
		}
		var has []string
		for _, topic := range slices.Sorted(maps.Keys(count)) {
			has = append(has, fmt.Sprintf("%d of %s", count[topic], topic))
		}
		texts[i] = fmt.Sprintf("%s at %s (partitions: %s)", m.ClientID,
			strings.TrimPrefix(m.Host, "/"), strings.Join(has, ", "))
	}
	return strings.Join(texts, "; ")
}
