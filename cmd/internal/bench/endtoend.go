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
	var results []Result
	for _, workload := range []string{"queued", "set"} {
		results = append(results, all[workload].result("firstseen, "+workload, "msg/s"))
	}
	if !withPeers {
		return l.report(results...)
	}
	for _, r := range rivals {
		versus := all[r.workload].against(all[r.name], "firstseen, "+r.workload, "msg/s", r.name)
		if r.goal > 0 {
			versus = versus.atLeast(r.goal)
		}
		versus.Note = r.says
		results = append(results, all[r.name].result(r.name, "msg/s"), versus)
	}
	return l.report(results...)
}

// ours measures firstseen with a workload over a new topic.
func (l *lab) ours(ctx context.Context, d *database, workload string, messages int) contender {
	return contender{workload, func() (float64, error) { return l.overTopic(ctx, d, "", workload, messages) }}
}

func (l *lab) theirs(ctx context.Context, d *database, r rival, messages int) contender {
	return contender{r.name, func() (float64, error) { return l.overTopic(ctx, d, r.name, "", messages) }}
}

// overTopic has a contender consume a topic of new messages, sees that it has written their effects, and gives its
// rate.
func (l *lab) overTopic(ctx context.Context, d *database, name, workload string, messages int) (float64, error) {
	j, err := l.jobFor(ctx, d, workload, topicSpec{messages: messages})
	if err != nil {
		return 0, err
	}
	o, err := l.contend(ctx, name, j)
	if err != nil {
		return 0, err
	}
	return o.rate(), d.expectEffects(ctx, messages)
}
