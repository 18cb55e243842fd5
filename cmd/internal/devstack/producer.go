package devstack

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	maxRate     = 100_000
	remembered  = 20_000 // messages that a copy may be made of
	flushLimit  = 30 * time.Second
	produceTick = 10 * time.Millisecond
)

// producer sends movements at an even rate, some of them again: half of the copies right behind their original, in
// the same request (a twin), the others some time later (a resend). The broker gives each an offset of its own.
type producer struct {
	client     *kgo.Client
	ledger     *ledger
	rate       int
	duplicates float64
	again      <-chan resend // what is to be sent again; nil: nothing ever

	recent []*kgo.Record // a ring
	made   int           // originals
}

// run produces until ctx ends, and then waits for the broker's answers, unless now ends too.
func (p *producer) run(ctx, now context.Context) error {
	tick := time.NewTicker(produceTick)
	defer tick.Stop()
	start, sent := time.Now(), 0
	for ctx.Err() == nil {
		for due := int(time.Since(start).Seconds() * float64(p.rate)); sent < due && ctx.Err() == nil; sent++ {
			if err := p.send(now); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case asked := <-p.again:
			n := min(asked.most, p.made, remembered)
			asked.sent <- n
			p.resend(now, n)
		case <-tick.C:
		}
	}
	return p.flush(now)
}

// resend sends the last n movements again, all at once.
func (p *producer) resend(ctx context.Context, n int) {
	for i := range n {
		p.produce(ctx, again(p.recent[(p.made-1-i)%remembered]), tally{})
	}
}

func again(r *kgo.Record) *kgo.Record {
	return &kgo.Record{Key: r.Key, Value: r.Value, Headers: r.Headers}
}

func (p *producer) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushLimit)
	defer cancel()
	if err := p.client.Flush(ctx); err != nil {
		return fmt.Errorf("produce: wait for the broker to confirm everything: %w", err)
	}
	return nil
}

// send hands one message to the client, and waits where that is full. A record whose ctx ends is given up, and
// nobody knows whether the broker has it.
func (p *producer) send(ctx context.Context) error {
	record, t, err := p.next()
	if err != nil {
		return err
	}
	p.produce(ctx, record, t)
	return nil
}

func (p *producer) produce(ctx context.Context, record *kgo.Record, t tally) {
	p.client.Produce(ctx, record, func(r *kgo.Record, err error) {
		if err != nil {
			p.ledger.lost(err)
			return
		}
		p.ledger.confirm(r.Partition, r.Offset, t)
	})
}

// next is a new message, or a copy of one.
func (p *producer) next() (*kgo.Record, tally, error) {
	if p.made > 0 && rand.Float64() < p.duplicates {
		at := p.made - 1
		if resend := rand.IntN(2) == 0; resend {
			at = rand.IntN(min(p.made, remembered))
		}
		return again(p.recent[at%remembered]), tally{}, nil
	}
	record, amount, err := newMovement()
	if err != nil {
		return nil, tally{}, err
	}
	if p.made < remembered {
		p.recent = append(p.recent, record)
	} else {
		p.recent[p.made%remembered] = record
	}
	p.made++
	return record, tally{Unique: 1, Balance: amount}, nil
}

func newMovement() (*kgo.Record, int64, error) {
	id, err := uuid.NewV7() // in the order of time, which keeps inserts of IDs local
	if err != nil {
		return nil, 0, fmt.Errorf("make message ID: %w", err)
	}
	m := movement{ID: id, Account: rand.IntN(accounts), Amount: rand.Int64N(1000) - 400}
	if rand.IntN(busyEvery) == 0 {
		m.Account = refusedAccount
	}
	m.Text = "payment"
	if m.Amount > 0 {
		m.Text = "deposit"
	}
	value, err := json.Marshal(m)
	if err != nil {
		return nil, 0, fmt.Errorf("write movement: %w", err)
	}
	return &kgo.Record{
		Key:     []byte(strconv.Itoa(m.Account)),
		Value:   value,
		Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id.String())}},
	}, m.Amount, nil
}
