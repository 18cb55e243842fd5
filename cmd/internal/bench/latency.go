package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// load is a pace of messages, and the most that 99 in 100 of them may take.
type load struct {
	name    string
	rate    float64 // messages a second
	goal    float64 // ms
	reached series  // messages a second that were sent
	tails   map[string]series
}

var tailShares = []struct {
	name  string
	share float64
}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}}

// warmUp is the time in which messages that do not count are sent.
const warmUp = time.Second

// latency takes the time from just before a message is given to the producer, which does not linger, until its
// transaction has committed: the client's, the broker's and Postgres' part are all in it, its sync to disk too. The
// commit is when another session sees the position beyond the message. It looks each millisecond, so that a figure is
// too large by up to one, never too small.
func latency(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	top, err := l.topRate(ctx, d)
	if err != nil {
		return err
	}
	loads := []*load{
		{name: "100 msg/s", rate: 100, goal: 10},
		{name: "half of the top rate", rate: math.Round(top / 2), goal: 20},
	}
	var contenders []contender
	for _, at := range loads {
		contenders = append(contenders, contender{at.name, func() (float64, error) { return l.underLoad(ctx, d, at) }})
	}
	if _, err := interleave(l.pick(3, 1), contenders...); err != nil {
		return err
	}
	return l.reportLatency(loads)
}

// topRate is the rate that comes through while the producer, which has its share of the machine here too, sends as
// fast as it can.
func (l *lab) topRate(ctx context.Context, d *database) (float64, error) {
	t, err := l.traffic(ctx, d, l.pick(200_000, 30_000), math.Inf(1))
	if err != nil {
		return 0, err
	}
	return float64(len(t.sent)) / slices.MaxFunc(t.committed, time.Time.Compare).Sub(t.sent[0]).Seconds(), nil
}

// traffic has firstseen consume a new topic while so many messages are written to it, at a rate.
func (l *lab) traffic(ctx context.Context, d *database, messages int, rate float64) (*traffic, error) {
	j, err := l.jobFor(ctx, d, "queued", topicSpec{})
	if err != nil {
		return nil, err
	}
	j.Messages = messages
	t, err := newTraffic(d, j)
	if err != nil {
		return nil, err
	}
	defer t.client.Close()
	if err := l.together(ctx, 1, j, func(ctx context.Context) error { return t.run(ctx, rate) }); err != nil {
		return nil, err
	}
	return t, d.expectEffects(ctx, messages)
}

// underLoad has firstseen consume a topic while it is being written, and gives the 99th percentile in ms.
func (l *lab) underLoad(ctx context.Context, d *database, at *load) (float64, error) {
	took := warmUp + time.Duration(l.pick(10, 3))*time.Second
	t, err := l.traffic(ctx, d, int(at.rate*took.Seconds()), at.rate)
	if err != nil {
		return 0, err
	}
	return at.take(t), nil
}

// take adds a round's figures, and gives the 99th percentile.
func (at *load) take(t *traffic) float64 {
	latencies := t.latencies(int(at.rate * warmUp.Seconds()))
	if at.tails == nil {
		at.tails = map[string]series{}
	}
	for _, tail := range tailShares {
		at.tails[tail.name] = append(at.tails[tail.name], milliseconds(percentile(latencies, tail.share)))
	}
	at.reached = append(at.reached, t.rate())
	p99 := at.tails["p99"]
	return p99[len(p99)-1]
}

// percentile is the least figure that the share of all does not exceed. It sorts them.
func percentile(all []time.Duration, share float64) time.Duration {
	slices.Sort(all)
	return all[max(0, int(math.Ceil(share*float64(len(all))))-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (l *lab) reportLatency(loads []*load) error {
	var all error
	for _, at := range loads {
		for _, tail := range tailShares {
			r := at.tails[tail.name].result(tail.name+" at "+at.name, "ms")
			if tail.name == "p99" {
				r = r.atMost(at.goal)
				r.Note = fmt.Sprintf("%s msg/s were wanted, %s sent",
					figure(at.rate), figure(math.Round(at.reached.median())))
			}
			all = errors.Join(all, l.report(r))
		}
	}
	return all
}
