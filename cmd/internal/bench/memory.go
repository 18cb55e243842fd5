package bench

import (
	"context"
	"time"
)

// memoryBuffer is the buffer's budget in the suite memory.
const memoryBuffer = 16 << 20

// slowBatch is what a batch takes longer on a slow database: the buffer is full all the time.
const slowBatch = 40 * time.Millisecond

// use is a run of firstseen of which memory counts, not time.
type use struct {
	job
	l           *lab
	d           *database
	peak        series // MiB
	allocations series // for each message
}

// memory takes messages at the top rate, from a fast and from a slow database, and looks at what the process took; and at
// what it allocates for a message, with a handler that does nothing and with one that queues an INSERT.
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
	uses := map[string]*use{}
	var contenders []contender
	for _, j := range []job{{Handler: "set"}, {Handler: "slow", Wait: slowBatch}, {Handler: "nothing"}, {Handler: "queued"}} {
		j.Topic, j.Messages, j.Partitions, j.BufferBytes = topic, messages, partitions, memoryBuffer
		u := &use{job: j, l: l, d: d}
		uses[j.Handler] = u
		contenders = append(contenders, contender{j.Handler, func() (float64, error) { return u.run(ctx) }})
	}
	if _, err := interleave(l.pick(3, 1), contenders...); err != nil {
		return err
	}
	return l.reportMemory(uses)
}

func (l *lab) reportMemory(uses map[string]*use) error {
	const bound = memoryBuffer/mebibyte + baseMiB
	queued := uses["queued"].allocations.result("allocations, queued", "/msg")
	queued.Note = "with pgx's and the handler's own"
	for _, r := range []Result{
		uses["set"].peak.most("peak, fast database", "MiB").atMost(bound),
		uses["slow"].peak.most("peak, slow database", "MiB").atMost(bound),
		uses["nothing"].allocations.result("allocations, handler of nothing", "/msg").atMost(4),
		queued,
	} {
		if err := l.report(r); err != nil {
			return err
		}
	}
	return nil
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
