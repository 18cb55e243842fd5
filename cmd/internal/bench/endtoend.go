package bench

import "context"

// rival is another program for the same job.
type rival struct {
	name     string // among the peers
	says     string // what it is
	workload string // of firstseen, that does the same
	goal     float64
	share    int // of firstseen's messages that it gets, one in so many
}

var rivals = []rival{
	{name: "byhand", says: "a transaction per message, by hand", workload: "queued", goal: 20, share: 20},
	{name: "byhand-tuned", says: "the same, a reader per partition", workload: "queued", share: 10},
	{name: "watermill", says: "Watermill, a transaction per message", workload: "queued", goal: 15, share: 10},
	{name: "expert-queued", says: "an expert's program, an INSERT per message", workload: "queued", share: 1},
	{name: "expert", says: "an expert's program, set-based, no inbox", workload: "set", goal: 1, share: 1},
	{name: "expert-inbox", says: "an expert's program, set-based, with an inbox", workload: "set", share: 1},
}

// endToEnd takes a topic through Kafka, deduplication, one row per message and the offsets.
func endToEnd(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	messages := l.pick(200_000, 20_000)
	contenders := []contender{l.ours(ctx, d, "queued", messages), l.ours(ctx, d, "set", messages)}
	withPeers := l.hasPeers()
	if withPeers {
		for _, r := range rivals {
			contenders = append(contenders, l.theirs(ctx, d, r, messages/r.share))
		}
	}
	all, err := interleave(l.pick(5, 1), contenders...)
	if err != nil {
		return err
	}
	return l.reportEndToEnd(all, withPeers)
}

func (l *lab) reportEndToEnd(all map[string]series, withPeers bool) error {
	for _, workload := range []string{"queued", "set"} {
		if err := l.report(all[workload].result("firstseen, "+workload, "msg/s")); err != nil {
			return err
		}
	}
	if !withPeers {
		return nil
	}
	for _, r := range rivals {
		if err := l.report(all[r.name].result(r.name, "msg/s")); err != nil {
			return err
		}
		versus := all[r.workload].against(all[r.name], "firstseen, "+r.workload, "msg/s", r.name)
		if r.goal > 0 {
			versus = versus.atLeast(r.goal)
		}
		versus.Note = r.says
		if err := l.report(versus); err != nil {
			return err
		}
	}
	return nil
}

// ours measures firstseen with a workload over a new topic.
func (l *lab) ours(ctx context.Context, d *database, workload string, messages int) contender {
	return contender{workload, func() (float64, error) {
		return l.overTopic(ctx, d, "", job{Handler: workload, Messages: messages})
	}}
}

func (l *lab) theirs(ctx context.Context, d *database, r rival, messages int) contender {
	return contender{r.name, func() (float64, error) {
		return l.overTopic(ctx, d, r.name, job{Messages: messages})
	}}
}

// overTopic has a contender consume a topic of new messages, and gives its rate.
func (l *lab) overTopic(ctx context.Context, d *database, name string, j job) (float64, error) {
	if err := d.empty(ctx); err != nil {
		return 0, err
	}
	topic, err := l.topic(ctx, topicSpec{messages: j.Messages})
	if err != nil {
		return 0, err
	}
	addrs, err := l.brokers(ctx)
	if err != nil {
		return 0, err
	}
	j.Brokers, j.Topic, j.Group, j.DSN, j.Partitions = addrs, topic, topic, d.dsn, partitions
	o, err := l.contend(ctx, name, j)
	if err != nil {
		return 0, err
	}
	return o.rate(), nil
}
