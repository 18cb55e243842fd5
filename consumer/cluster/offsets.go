package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/operate"
)

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// GroupOffset is a group's committed offset in a partition, and the partition's bounds.
type GroupOffset struct {
	Topic     string
	Partition int32
	// Committed is the group's committed offset; -1 where it has none.
	Committed int64
	// Earliest is the first offset that is left; -1 where it was not found.
	Earliest int64
	// Stable is the last stable offset, where the partition ends for readers of committed messages; -1 where it was
	// not found.
	Stable int64
	// End is the high watermark, where it ends for all others; -1 where it was not found.
	End int64
}

// Offsets tells where a group stands in the partitions of some topics, sorted. An empty group asks for the partitions
// only. Topics that do not exist are left out. Beside an error, which names each partition that failed, everything is
// there that was found. It matches ErrNotAllowed where the ACLs are the cause.
func (c *Cluster) Offsets(ctx context.Context, group string, topics []string) ([]GroupOffset, error) {
	parts, err := c.partitions(ctx, topics)
	earliest, stable, end := map[wire.TopicPartition]int64{}, map[wire.TopicPartition]int64{},
		map[wire.TopicPartition]int64{}
	committed := map[wire.TopicPartition]wire.Reading{}
	faults := []error{err,
		c.patiently(ctx,
			func() (err error) { earliest, err = c.wire.ListOffsets(ctx, parts, wire.EarliestOffset); return err }),
		c.patiently(ctx,
			func() (err error) { stable, err = c.wire.ListOffsets(ctx, parts, wire.LatestOffset); return err }),
		c.patiently(ctx, func() (err error) { end, err = c.wire.ListOffsets(ctx, parts, wire.EndOffset); return err }),
	}
	if group != "" {
		faults = append(faults, c.patiently(ctx, func() (err error) {
			committed, err = c.wire.CommittedOffsets(ctx, group, parts)
			return err
		}))
	}
	found := make([]GroupOffset, len(parts))
	for i, tp := range parts {
		found[i] = GroupOffset{Topic: tp.Topic, Partition: tp.Partition, Committed: wire.OffsetIn(committed, tp),
			Earliest: orNone(earliest, tp), Stable: orNone(stable, tp), End: orNone(end, tp)}
	}
	return found, errors.Join(faults...)
}

func orNone[K comparable](offsets map[K]int64, at K) int64 {
	if offset, ok := offsets[at]; ok {
		return offset
	}
	return -1
}

// partitions lists the partitions of the topics that exist, those at home, sorted.
func (c *Cluster) partitions(ctx context.Context, topics []string) ([]wire.TopicPartition, error) {
	var found map[string]wire.Topic
	err := c.patiently(ctx, func() (err error) { found, err = c.wire.Metadata(ctx, topics); return err })
	faults := []error{err}
	var parts []wire.TopicPartition
	for name, t := range found {
		if t.Err != nil && !wire.IsGone(t.Err) {
			faults = append(faults, allowed(fmt.Errorf("topic %s: %w", name, t.Err)))
		}
		for _, p := range t.Partitions {
			if !c.cfg.Home.Has(p.ID) {
				continue
			}
			parts = append(parts, wire.TopicPartition{Topic: name, Partition: p.ID})
		}
	}
	slices.SortFunc(parts, func(a, b wire.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return parts, errors.Join(faults...)
}

// Oldest tells the timestamp of the first message that is left in each partition of a topic. A partition without a
// message is absent.
func (c *Cluster) Oldest(ctx context.Context, topic string) (map[int32]time.Time, error) {
	parts, err := c.partitions(ctx, []string{topic})
	if err != nil {
		return nil, err
	}
	oldest := map[int32]time.Time{}
	err = c.patiently(ctx, func() error {
		found, err := c.wire.ListRecords(ctx, parts, 0)
		for tp, r := range found {
			if r.Offset >= 0 {
				oldest[tp.Partition] = time.UnixMilli(r.Timestamp)
			}
		}
		return err
	})
	if err != nil {
		return oldest, fmt.Errorf("oldest messages of topic %s: %w", topic, err)
	}
	return oldest, nil
}

// ErrGroupInUse says that a group has members: its offsets are theirs to commit.
var ErrGroupInUse = errors.New("the group has members")

// CommitOffsets sets a group's committed offsets in a topic: next has the offset to read next for each partition.
// The group must have no members: Kafka refuses it otherwise, and the error is ErrGroupInUse. A group that does not
// exist is made.
func (c *Cluster) CommitOffsets(ctx context.Context, group, topic string, next map[int32]int64) error {
	if len(next) == 0 {
		return nil
	}
	commit := wire.GroupCommit{Group: group, Generation: -1,
		Offsets: make(map[wire.TopicPartition]wire.Reading, len(next))}
	for p, offset := range next {
		commit.Offsets[wire.TopicPartition{Topic: topic, Partition: p}] = wire.Reading{Offset: offset}
	}
	err := c.patiently(ctx, func() error { _, err := c.wire.CommitOffsets(ctx, commit); return err })
	for _, inUse := range []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress} {
		if errors.Is(err, inUse) {
			err = fmt.Errorf("%w: %w", ErrGroupInUse, err)
		}
	}
	if err != nil {
		return fmt.Errorf("commit offsets of group %s in topic %s: %w", group, topic, err)
	}
	return nil
}

// CutOff finds out whether a partition's log is not the one that a position was reached in, as after an unclean
// leader election; then at is where the two part, or where a consumer that read on there would have to begin at the
// latest. Where the position's leader epoch is not known, or the brokers are older than 2.3, nothing is found.
func (c *Cluster) CutOff(ctx context.Context, p operate.Position) (at int64, found bool, err error) {
	var parts *wire.Parting
	err = c.patiently(ctx, func() (err error) {
		tp := wire.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		parts, _, err = c.wire.Parted(ctx, tp, p.TopicID, wire.Reading{Offset: p.Next, Epoch: p.LeaderEpoch})
		return err
	})
	if err != nil || parts == nil {
		return 0, false, err
	}
	return parts.At, true, nil
}
