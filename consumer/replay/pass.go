package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
)

// pass is one Read. run owns every goroutine of it and returns when all have ended.
type pass struct {
	reader     *Reader
	cluster    *holds.Place // of looks at the cluster
	settings   consumer.Topic
	topic      wire.Topic // as it was at the start
	partitions map[wire.TopicPartition]*fetch.Partition
	fetching   *fetch.Fetcher
	f          func(context.Context, Page) error

	ctx        context.Context // ends when the ranges are read, or with the first error
	fail       context.CancelCauseFunc
	goroutines sync.WaitGroup
}

func newPass(ctx context.Context, r *Reader, settings consumer.Topic, f func(context.Context, Page) error) *pass {
	p := &pass{
		reader: r, cluster: r.holds.Place(holds.TopicKind, settings.Name), settings: settings, f: f,
		partitions: map[wire.TopicPartition]*fetch.Partition{},
	}
	p.ctx, p.fail = context.WithCancelCause(ctx)
	p.fetching = &fetch.Fetcher{
		Config: r.fetching(), Wire: r.wire, Memory: r.memory, Holds: r.holds,
		Log: r.cfg.Logger, Telemetry: r.telemetry,
		Decider: p, Ctx: p.ctx, Partitions: p.partitions,
	}
	return p
}

func (r *Reader) fetching() fetch.Config {
	return fetch.Config{Wait: r.cfg.FetchWait, Bytes: r.cfg.FetchBytes, BufferBytes: r.cfg.BufferBytes,
		Interval: r.cfg.MetadataInterval}
}

// settingsOf says how a topic's records become messages.
func settingsOf(t consumer.Topic) fetch.Settings {
	return fetch.Settings{Rule: t.Identity, TenantHeader: t.TenantHeader, Fingerprint: t.Fingerprint, Format: t.Format}
}

// run begins the pass and takes it to its end.
func (p *pass) run(ranges []Range) error {
	defer p.finish()
	pagers, err := p.begin(ranges)
	if err != nil || len(pagers) == 0 {
		return err
	}
	p.fetching.StartLoops()
	p.goroutines.Go(p.watch)
	p.goroutines.Go(func() { p.reader.holds.Run(p.ctx) })
	var reading sync.WaitGroup
	for _, g := range pagers {
		reading.Go(g.run)
	}
	reading.Wait()
	for _, g := range pagers {
		if g.next < g.end {
			return context.Cause(p.ctx)
		}
	}
	return nil
}

// finish ends everything that belongs to the pass.
func (p *pass) finish() {
	p.fail(nil)
	p.goroutines.Wait()
	p.fetching.Finish()
	p.cluster.Leave()
	for _, b := range p.partitions {
		b.Unheld()
	}
}

// begin finds out where the ranges end, and makes a pager for each that holds anything.
func (p *pass) begin(ranges []Range) (pagers []*pager, err error) {
	partitions := make([]int32, len(ranges))
	for i := range ranges {
		partitions[i] = ranges[i].Partition
	}
	topic, ends, err := p.reader.lookUp(p.ctx, p.settings.Name, partitions, wire.LatestOffset)
	if err != nil {
		return nil, err
	}
	p.topic = topic
	for _, r := range ranges {
		end := min(r.To, ends[r.Partition])
		if r.From >= end {
			continue
		}
		b := fetch.NewPartition(wire.TopicPartition{Topic: topic.Name, Partition: r.Partition}, topic,
			settingsOf(p.settings))
		b.HeldIn(p.reader.holds)
		b.End = end
		b.ReadFrom(r.From, nil)
		p.partitions[b.TopicPartition] = b
		pagers = append(pagers, &pager{pass: p, partition: b, next: r.From, end: end})
	}
	return pagers, nil
}

// watch looks at the cluster now and then.
func (p *pass) watch() {
	for wait.Sleep(p.ctx, p.reader.cfg.MetadataInterval) {
		p.Refresh()
	}
}

// Refresh brings the leaders up to date and ends the pass where the topic is not the one that it began with.
func (p *pass) Refresh() {
	found, err := p.reader.wire.Metadata(p.ctx, []string{p.topic.Name})
	if err != nil {
		if p.ctx.Err() == nil {
			p.cluster.Wait(holds.Kafka, err)
		}
		return
	}
	p.cluster.End()
	switch now := found[p.topic.Name]; {
	case wire.IsGone(now.Err):
		p.fail(errors.New("it was deleted meanwhile"))
	case now.Err == nil && now.ID != p.topic.ID:
		p.fail(errors.New("it was deleted and created again meanwhile"))
	default:
		p.fetching.Follow(found)
	}
}

// OutOfRange ends the pass where messages were deleted, or goes on behind them.
func (p *pass) OutOfRange(b *fetch.Partition) {
	at, first, ok := p.fetching.FirstLeft(b)
	first = min(first, b.End)
	switch {
	case !ok:
	case at >= first:
		b.NameEpochs(false)         // a leader that keeps none has nothing after any
		b.BackOff(fetch.ErrorPause) // a leader that is new is behind for a moment; if it stays so, the pager gives up
	case p.reader.cfg.OnLoss == consumer.Continue:
		p.fetching.SkipLost(b, at, first)
	default:
		p.fail(fmt.Errorf("messages %s@%d to %d were deleted before they were read", b, at, first-1))
	}
}

// Undecodable ends the pass.
func (p *pass) Undecodable(_ *fetch.Partition, _ int64, err error) { p.fail(err) }

// Diverged ends the pass.
func (p *pass) Diverged(b *fetch.Partition, err error) {
	p.fail(fmt.Errorf("partition %d was cut off while it was read: %w", b.Partition, err))
}
