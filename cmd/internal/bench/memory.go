package bench

import (
	"context"
	"time"
)

const memoryBuffer = 16 << 20

// slowBatch is a batch's extra time on a slow database: the buffer is full all the time.
const slowBatch = 40 * time.Millisecond

// use is a run of firstseen of which memory counts.
type use struct {
	name string
	job
	l           *lab
	d           *database
	peak        series // MiB
	allocations series // for each message
}

// memory takes messages at the top rate, from a fast and from a slow database, with and without a limit to Go's heap,
// and looks at what the process took; and at what it allocates for a message, with a handler that does nothing and
// with one that queues an INSERT. Then it takes topics that would take far more than there is.
func memory(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	messages := l.pick(400_000, 60_000)
	topic, err := l.topic(ctx, topicSpec{messages: messages})
	if err != nil {
		return err
	}
	uses := []*use{
		{name: "fast database", job: job{Handler: "set"}},
		{name: "fast database, unlimited heap", job: job{Handler: "set", Unlimited: true}},
		{name: "slow database", job: job{Handler: "slow", Wait: slowBatch}},
		{name: "handler of nothing", job: job{Handler: "nothing"}},
		{name: "queued", job: job{Handler: "queued"}},
		{name: "queued, unlimited heap", job: job{Handler: "queued", Unlimited: true}},
	}
	var contenders []contender
	for _, u := range uses {
		u.l, u.d = l, d
		u.Topic, u.Messages, u.Partitions, u.BufferBytes = topic, messages, partitions, memoryBuffer
		contenders = append(contenders, contender{u.name, func() (float64, error) { return u.run(ctx) }})
	}
	rates, err := interleave(l.pick(3, 1), contenders...)
	if err != nil {
		return err
	}
	if err := l.reportMemory(uses, rates); err != nil {
		return err
	}
	return l.hostile(ctx, d)
}

func (l *lab) reportMemory(uses []*use, rates map[string]series) error {
	const bound = memoryBuffer/mebibyte + baseMiB
	var results []Result
	for _, u := range uses {
		if u.Unlimited {
			results = append(results, u.peak.most("peak, "+u.name, "MiB"))
		} else if u.Handler != "nothing" {
			results = append(results, u.peak.most("peak, "+u.name, "MiB").atMost(bound))
		}
	}
	for _, pair := range [][2]*use{{uses[0], uses[1]}, {uses[4], uses[5]}} {
		results = append(results, rates[pair[0].name].against(rates[pair[1].name], "rate, "+pair[0].name, "msg/s",
			"unlimited heap"))
	}
	queued := uses[4].allocations.result("allocations, queued", "/msg")
	queued.Note = "with pgx's and the handler's own"
	return l.report(append(results, uses[3].allocations.result("allocations, handler of nothing", "/msg").atMost(4),
		queued)...)
}

// run takes the topic through for a group and inbox of its own, to which all is new.
func (u *use) run(ctx context.Context) (float64, error) {
	if err := u.d.empty(ctx); err != nil {
		return 0, err
	}
	j := u.job
	j.Group = u.l.name()
	o, err := u.l.firstseen(ctx, u.d, j)
	if err != nil {
		return 0, err
	}
	u.peak = append(u.peak, float64(o.PeakBytes)/mebibyte)
	u.allocations = append(u.allocations, float64(o.Allocations)/float64(o.Messages))
	effects := o.Messages
	if j.Handler == "nothing" {
		effects = 0
	}
	return o.rate(), u.d.expectEffects(ctx, effects)
}
