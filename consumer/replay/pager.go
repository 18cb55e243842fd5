package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
)

// pager takes one partition through its range.
type pager struct {
	*pass
	partition  *fetch.Partition
	next, end  int64     // what is left to read
	shortSince time.Time // since when the partition ends below the range's end; zero: it does not
}

func (g *pager) run() {
	defer func() {
		if g.next < g.end {
			// unless there was an error before
			g.fail(errors.New("the goroutine that a page was handed over in was ended"))
		}
	}()
	for g.next < g.end && g.await() && g.reader.slots.Take(g.ctx) {
		if err := g.turn(); err != nil {
			g.fail(err)
		}
	}
}

// turn uses a slot for the next page.
func (g *pager) turn() error {
	defer g.reader.slots.Give()
	return g.page()
}

// await waits until there is something to take, or nothing is left.
func (g *pager) await() bool {
	look := time.NewTicker(g.reader.cfg.FetchWait)
	defer look.Stop()
	for g.ctx.Err() == nil {
		if g.partition.Beyond(g.next) {
			return true
		}
		select {
		case <-g.ctx.Done():
		case <-g.partition.Data.C:
		case <-look.C:
			g.look()
		}
	}
	return false
}

// page hands the next page over.
func (g *pager) page() error {
	t := g.partition.Take(g.reader.cfg.MaxBatch, g.reader.cfg.MaxBatchBytes)
	defer func() { g.reader.memory.Give(g.partition.Done(t.Next)) }()
	next := min(t.Next, g.end)
	if next == g.next {
		return nil
	}
	b := g.partition
	messages, err := g.decode(t.Records)
	if err != nil {
		return err
	}
	page := Page{Topic: b.Topic, TopicID: b.TopicID, Partition: b.Partition, Messages: messages, Next: next}
	if err := g.f(g.ctx, page); err != nil {
		return fmt.Errorf("page %s@%d: %w", b, g.next, err)
	}
	g.next, g.shortSince = next, time.Time{}
	return nil
}

// decode turns the range's records into messages. The error is the end of the pass.
func (g *pager) decode(records []*wire.Record) ([]dedup.Message, error) {
	messages := make([]dedup.Message, 0, len(records))
	for _, r := range records {
		if r.Offset >= g.end {
			break
		}
		m, err := g.partition.Message(g.ctx, r)
		for retry := wait.NewBackoff(); err != nil; m, err = g.partition.Message(g.ctx, r) {
			g.partition.WaitFor(err, "offset", r.Offset)
			if !wait.Sleep(g.ctx, retry.Next()) {
				return nil, context.Cause(g.ctx)
			}
		}
		messages = append(messages, m)
	}
	g.partition.Progress(time.Time{})
	return messages, nil
}

// look finds out why nothing comes. Where compaction took the range's last messages and all behind them, no fetch ever
// moves on.
func (g *pager) look() {
	if !g.partition.Stalled() {
		return
	}
	found, err := g.probe(g.next)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange), err == nil && found.LastStable < g.end:
		g.short()
	case err == nil && found.Next == g.next:
		// A broker also answers nothing for what its tiered storage is slow to give. Only what was never tiered can be
		// missing at the end, so that nothing being there too is the proof.
		if last, err := g.probe(g.end - 1); err == nil && last.Next == g.end-1 {
			g.partition.ReadFrom(g.end, nil)
		}
	}
}

// probe peeks at the partition, and takes no answer of a broker that throttles for one.
func (g *pager) probe(offset int64) (wire.Fetched, error) {
	found, err := g.fetching.Peek(g.partition, offset)
	if err == nil && found.LastStable < 0 {
		err = wire.ErrThrottled
	}
	return found, err
}

// shortLooks is the number of MetadataIntervals after which it is believed.
const shortLooks = 6

// short gives up where the partition goes on to end below the range's end. A new leader is behind only for a moment.
func (g *pager) short() {
	if g.shortSince.IsZero() {
		g.shortSince = time.Now()
	}
	if time.Since(g.shortSince) >= shortLooks*g.reader.cfg.MetadataInterval {
		g.fail(fmt.Errorf("partition %d ends below %d now, which it did not before: it was cut off or made anew",
			g.partition.Partition, g.end))
	}
}
