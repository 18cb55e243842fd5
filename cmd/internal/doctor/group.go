package doctor

import (
	"context"
	"time"

	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/dedup/operate"
)

var groupChecks = []Check{
	{
		Name: "kafka.group", About: "the group has members and is at rest", needs: needsKafka, run: groupState,
		Do: map[Level]string{
			Warning: "Start a consumer: nobody reads. If it runs, look into its log; " +
				"it may use another group or other brokers.",
			Info: "Look again in a minute. A group that keeps rebalancing has members that come and go, " +
				"or that take longer than timeouts.rebalance.",
		},
	},
	{
		Name: "kafka.owners", About: "each partition has a member that reads it", needs: needsKafka, run: groupOwners,
		Do: map[Level]string{Fault: "A member of the group reads other topics: another program, or an old config, " +
			"has joined it. Give each program a group of its own, and roll the config out to all instances."},
	},
	{
		Name: "kafka.positions", About: "each partition has a position in Postgres", needs: needsKafka | needsInbox,
		run: groupPositions,
		Do: map[Level]string{Warning: "See that a consumer runs and is assigned the partition; " +
			"its log says what keeps it from beginning."},
	},
	{
		Name: "kafka.lag", About: "the group keeps up", needs: needsKafka, run: groupLag,
		Do: map[Level]string{Warning: "See whether it falls (`firstseen offsets show`). " +
			"If not: more instances, up to the number of partitions, more batch.transactions, or a faster handler. " +
			"The limit is health.degraded.backlog."},
	},
	{
		Name: "kafka.loss", About: "messages are read before retention deletes them",
		needs: needsKafka, run: groupLoss,
		Do: map[Level]string{
			Fault: "They are gone; the consumer goes on with what is left, or holds the partition (on_loss). " +
				"Send them again from their source, and raise retention.ms.",
			Warning: "Raise the topic's retention.ms now, and then see why the group is behind.",
			Info: "If the topic's producers use transactions, all is well. Else one message is gone: " +
				"see that retention.ms is longer than the consumer is ever away.",
		},
	},
	{
		Name: "kafka.transactions", About: "no open transaction of a producer holds a partition back",
		needs: needsKafka,
		run:   groupTransactions,
		Do: map[Level]string{Warning: "Find the producer: kafka-transactions.sh find-hanging, " +
			"or describe-producers. It commits, or its transaction.timeout.ms ends it; " +
			"a hanging one is ended by kafka-transactions.sh abort."},
	},
	{
		Name: "kafka.two_databases", About: "one database stands behind the group", needs: needsKafka | needsInbox,
		run: groupDatabases,
		Do: map[Level]string{
			Fault: "Stop the other program, and give each database a group of its own. " +
				"Here the messages it took are missing: once it is stopped, a start with on_postgres_behind: " +
				"position reads them.",
			Warning: "If Postgres was restored or failed over, start the consumer: it begins at the position. " +
				"If somebody moved the group on purpose, set on_postgres_behind: committed for one start. " +
				"Else another program, or an instance with another database, has used the group.",
			Info: "Postgres was set back, and what it lost is being done again. Nothing has to be done.",
		},
	},
}

// members describes the group.
func (p *target) members(ctx context.Context) (cluster.Group, error) {
	return p.cluster.Group(ctx, p.Config.Group)
}

func groupState(ctx context.Context, p *target, r *report) error {
	if len(p.Config.Topics) == 0 {
		r.ok("there are no topics to read")
		return nil
	}
	g, err := p.members(ctx)
	switch {
	case err != nil:
		return err
	case g.State == "Dead" || g.State == "Empty":
		r.warn("the group %s has no members", p.Config.Group)
	case g.State != "Stable":
		r.info("the group %s has %d members and is %s", p.Config.Group, len(g.Members), g.State)
	}
	r.ok("the group %s is %s and has %d members", p.Config.Group, g.State, len(g.Members))
	return nil
}

func groupOwners(ctx context.Context, p *target, r *report) error {
	g, err := p.members(ctx)
	if err != nil {
		return err
	}
	if g.State != "Stable" {
		r.ok("the group is %s", g.State)
		return nil
	}
	facts, err := p.readFacts(ctx)
	if err != nil {
		return err
	}
	for _, f := range facts {
		for n := range f.Partitions {
			if g.Owner(f.Name, int32(n)).ID == "" {
				r.fault("nobody of the %d members reads %s/%d", len(g.Members), f.Name, n)
			}
		}
	}
	r.ok("each partition has one")
	return nil
}

// positionsByPartition returns the positions of the config's group.
func (p *target) positionsByPartition(ctx context.Context) (map[cluster.TopicPartition]operate.Position, error) {
	list, err := p.inbox.Positions(ctx, p.Config.Group)
	at := make(map[cluster.TopicPartition]operate.Position, len(list))
	for _, s := range list {
		at[cluster.TopicPartition{Topic: s.Topic, Partition: s.Partition}] = s
	}
	return at, err
}

func (p *target) offsets(ctx context.Context) ([]cluster.GroupOffset, error) {
	names, err := p.topicNames(ctx)
	if err != nil {
		return nil, err
	}
	return p.cluster.Offsets(ctx, p.Config.Group, names)
}

func of(o cluster.GroupOffset) cluster.TopicPartition {
	return cluster.TopicPartition{Topic: o.Topic, Partition: o.Partition}
}

func groupPositions(ctx context.Context, p *target, r *report) error {
	offsets, err := p.offsets(ctx)
	if err != nil {
		return err
	}
	positions, err := p.positionsByPartition(ctx)
	for _, o := range offsets {
		if at, known := positions[of(o)]; !known || at.Next < 0 {
			r.warn("%s/%d has no position: it was never begun here", o.Topic, o.Partition)
		}
	}
	r.ok("partitions with a position: %d", len(offsets))
	return err
}

// next is the group's next offset in a partition: the committed one, or that of the first message.
func next(o cluster.GroupOffset) int64 {
	if o.Committed >= 0 {
		return o.Committed
	}
	return o.Earliest
}

func groupLag(ctx context.Context, p *target, r *report) error {
	limit := int64(p.Config.Health.Degraded.Backlog)
	if limit <= 0 {
		limit = 100_000
	}
	offsets, err := p.offsets(ctx)
	var total, worst int64
	var where cluster.GroupOffset
	for _, o := range offsets {
		lag := max(0, o.End-next(o))
		if total += lag; lag > worst {
			worst, where = lag, o
		}
	}
	if total > limit {
		r.warn("the group is %d messages behind, %d of them in %s/%d", total, worst, where.Topic, where.Partition)
	}
	r.ok("the group is %d messages behind", total)
	return err
}

// groupLoss holds how old a partition's next message is against the topic's retention. Its age is estimated: between
// the oldest message and the end as offsets lie between them.
func groupLoss(ctx context.Context, p *target, r *report) error {
	offsets, err := p.offsets(ctx)
	if err != nil {
		return err
	}
	err = p.eachRead(ctx, r, func(f cluster.TopicFacts) {
		oldest, err := p.cluster.Oldest(ctx, f.Name)
		if err != nil {
			r.notChecked(err)
			return
		}
		for _, o := range offsets {
			if o.Topic == f.Name {
				p.judgeLoss(r, f, o, oldest[o.Partition])
			}
		}
	})
	r.ok("no unread message is close to the end of its retention")
	return err
}

func (p *target) judgeLoss(r *report, f cluster.TopicFacts, o cluster.GroupOffset, oldest time.Time) {
	const nearly = 0.8
	switch gone := o.Earliest - o.Committed; {
	case o.Committed < 0 || gone <= 0:
	case gone == 1:
		r.info("%s/%d: offset %d was deleted before it was read: a message, or the mark at the end of a transaction",
			o.Topic, o.Partition, o.Committed)
		return
	default:
		r.fault("%s/%d: messages %d to %d were deleted before they were read", o.Topic, o.Partition, o.Committed,
			o.Earliest-1)
		return
	}
	at := next(o)
	if oldest.IsZero() || at >= o.End || f.Retention < 0 {
		return
	}
	unread := float64(o.End-at) / float64(max(1, o.End-o.Earliest))
	waited := time.Duration(float64(p.now().Sub(oldest)) * unread)
	if waited > time.Duration(nearly*float64(f.Retention)) {
		r.warn("%s/%d: the next of %d unread messages is about %s old, and retention.ms is %s", o.Topic, o.Partition,
			o.End-at,
			age(waited.Seconds()), f.Retention)
	}
}

func groupTransactions(ctx context.Context, p *target, r *report) error {
	before, err := p.offsets(ctx)
	if err != nil {
		return err
	}
	stalled := map[cluster.TopicPartition]int64{}
	for _, o := range before {
		if o.Stable >= 0 && o.Stable < o.End {
			stalled[of(o)] = o.Stable
		}
	}
	if len(stalled) == 0 {
		r.ok("no open transaction holds a partition back")
		return nil
	}
	p.wait(ctx, p.limits.pause) // most transactions are over by then
	after, err := p.offsets(ctx)
	for _, o := range after {
		if at, was := stalled[of(o)]; was && o.Stable == at && o.Stable < o.End {
			r.warn("%s/%d: an open transaction at offset %d holds %d messages back",
				o.Topic, o.Partition, at, o.End-at)
		}
	}
	r.ok("no open transaction holds a partition back for long")
	return err
}

// groupDatabases goes by what firstseen promises: an offset is committed to Kafka after the position has moved in
// Postgres. So a position that is read after the offset is never lower, whatever happens in between; a lower one was
// not moved by whoever committed. Where the offset then moves and the position does not, he is at it now.
func groupDatabases(ctx context.Context, p *target, r *report) error {
	first, err := p.ahead(ctx)
	if err != nil || len(first) == 0 {
		r.ok("no offset is ahead of its position")
		return err
	}
	p.wait(ctx, p.limits.pause)
	second, err := p.ahead(ctx)
	for tp, then := range first {
		now, still := second[tp]
		switch {
		case still && now.committed > then.committed && now.position == then.position:
			r.fault("%s/%d: the committed offset moved from %d to %d while "+
				"the position in this database stands at %d: somebody without this database commits for the group",
				tp.Topic, tp.Partition, then.committed, now.committed, now.position)
		case still && now.position != then.position:
			r.info("%s/%d: the position %d is catching up with the committed offset %d",
				tp.Topic, tp.Partition, now.position, now.committed)
		case still && now.position >= 0: // without a position it was not begun here yet: see kafka.positions
			r.warn("%s/%d: the committed offset %d is ahead of the position in Postgres, %d", tp.Topic, tp.Partition,
				now.committed, now.position)
		}
	}
	r.ok("no offset stays ahead of its position")
	return err
}

type standing struct{ committed, position int64 }

// ahead gives the partitions whose committed offset is higher than their position, or that have an offset and no
// position.
func (p *target) ahead(ctx context.Context) (map[cluster.TopicPartition]standing, error) {
	offsets, err := p.offsets(ctx)
	if err != nil {
		return nil, err
	}
	positions, err := p.positionsByPartition(ctx) // after the offsets, see groupDatabases
	found := map[cluster.TopicPartition]standing{}
	for _, o := range offsets {
		at, known := positions[of(o)]
		if !known {
			at.Next = -1
		}
		if o.Committed > at.Next && o.Committed >= 0 {
			found[of(o)] = standing{o.Committed, at.Next}
		}
	}
	return found, err
}
