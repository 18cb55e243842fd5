package bench

import (
	"context"
	"fmt"
	"time"
)

// memoryBuffer is the buffer's budget in the suite memory.
const memoryBuffer = 16 << 20

// slowBatch is what a batch takes longer on a slow database: the buffer is full all the time.
const slowBatch = 40 * time.Millisecond

// memoryLimit is the limit for Go's heap under which the process stays within its budget: what it takes beside its heap
// is the program itself.
const memoryLimit = memoryBuffer + 40<<20

// use is a run of firstseen of which memory counts.
type use struct {
	name string
	job
	l           *lab
	d           *database
	peak        series // MiB
	allocations series // for each message
}

// memory takes messages at the top rate, from a fast and from a slow database, with and without a limit to Go's heap, and
// looks at what the process took; and at what it allocates for a message, with a handler that does nothing and with one
// that queues an INSERT.
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
		{name: "fast database, limited", job: job{Handler: "set", MemoryLimit: memoryLimit}},
		{name: "slow database", job: job{Handler: "slow", Wait: slowBatch}},
		{name: "slow database, limited", job: job{Handler: "slow", Wait: slowBatch, MemoryLimit: memoryLimit}},
		{name: "handler of nothing", job: job{Handler: "nothing"}},
		{name: "queued", job: job{Handler: "queued"}},
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
	return l.reportMemory(uses, rates)
}

func (l *lab) reportMemory(uses []*use, rates map[string]series) error {
	const bound = memoryBuffer/mebibyte + baseMiB
	var results []Result
	for _, u := range uses[:4] {
		r := u.peak.most("peak, "+u.name, "MiB").atMost(bound)
		if u.MemoryLimit > 0 {
			r.Note = fmt.Sprintf("with GOMEMLIMIT=%dMiB", u.MemoryLimit/mebibyte)
		}
		results = append(results, r)
	}
	limited := uses[1].name
	queued := uses[5].allocations.result("allocations, queued", "/msg")
	queued.Note = "with pgx's and the handler's own"
	results = append(results, rates[limited].against(rates[uses[0].name], "rate, "+limited, "msg/s", "without a limit"),
		uses[4].allocations.result("allocations, handler of nothing", "/msg").atMost(4), queued)
	return l.report(results...)
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
