package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	manyPartitions = 500
	bufferBytes    = 64 << 20 // consumer.Config's default
	baseMiB        = 64       // of a process, beside its buffer
	mebibyte       = 1 << 20
)

// manyParts takes the same messages from many partitions and from few, with one instance.
func manyParts(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	few := &spread{l: l, d: d, messages: l.pick(400_000, 80_000), partitions: partitions}
	many := &spread{l: l, d: d, messages: few.messages, partitions: manyPartitions}
	all, err := interleave(l.pick(5, 1), few.contender(ctx), many.contender(ctx))
	if err != nil {
		return err
	}
	rate := all[many.name()].against(all[few.name()], many.name(), "msg/s", few.name()).atLeast(.8)
	rate.Note = "from when all partitions are acquired"
	return l.report(
		all[few.name()].result(few.name(), "msg/s"),
		rate,
		many.starts.against(few.starts, "start until all are acquired", "s", few.name()),
		many.connections.most("connections, "+many.name(), "").atMost(float64(job{}.connections())),
		many.memory.most("peak memory, "+many.name(), "MiB").atMost(bufferBytes/mebibyte+baseMiB),
	)
}

// spread is messages over a number of partitions, and what a process that takes them has used beside time.
type spread struct {
	l                           *lab
	d                           *database
	topic                       string // made in the first round
	messages, partitions        int
	starts, connections, memory series // seconds, the most in a round, MiB
}

func (s *spread) name() string { return fmt.Sprintf("%d partitions", s.partitions) }

func (s *spread) contender(ctx context.Context) contender {
	return contender{s.name(), func() (float64, error) { return s.run(ctx) }}
}

func (s *spread) run(ctx context.Context) (float64, error) {
	if err := s.d.empty(ctx); err != nil {
		return 0, err
	}
	if s.topic == "" {
		topic, err := s.l.topic(ctx, topicSpec{messages: s.messages, partitions: s.partitions})
		if err != nil {
			return 0, err
		}
		s.topic = topic
	}
	j := job{Topic: s.topic, Group: s.l.name(), Handler: "set", Messages: s.messages, Partitions: s.partitions,
		BufferBytes: bufferBytes}
	var o outcome
	connected, err := s.d.connectedDuring(ctx, func() (err error) {
		o, err = s.l.firstseen(ctx, s.d, j)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.starts, s.connections = append(s.starts, o.FirstSeconds), append(s.connections, float64(connected))
	s.memory = append(s.memory, float64(o.PeakBytes)/mebibyte)
	return o.steady(), s.d.expectEffects(ctx, s.messages)
}

// connectedDuring runs f and gives the most connections that contenders were seen to have meanwhile.
func (d *database) connectedDuring(ctx context.Context, f func() error) (most int, err error) {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case e := <-ended:
			tick.Stop()
			return most, errors.Join(e, err)
		case <-tick.C:
		}
		n, e := d.count(ctx, connections)
		most, err = max(most, n), e
	}
}
