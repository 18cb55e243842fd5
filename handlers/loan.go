package handlers

import (
	"context"
	"errors"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/memory"
)

// Draw has what is loaded of parked messages count on an account, together with whatever else does. Call it before
// RunLanes. Without an account each lane worker loads up to 16 MiB at once.
func (p *Processor) Draw(account *memory.Account) { p.memory = account }

// loan is memory for parked messages that are loaded, until they are settled. It is not safe for concurrent use.
type loan struct {
	account *memory.Account // nil: nobody counts
	bytes   int
	large   func() // lets others load large messages
}

// entryBytes is about what a parked message takes beside its key, value and headers.
const entryBytes = 1 << 10

var errMemory = errors.New("all memory for messages is in use")

// largeBytes is from where on a message is large: on its way to Postgres the driver has up to three copies of it, which
// nobody counts.
const largeBytes = 4 << 20

// largeTurn has a batch with a large message wait for others that are in hand, as long as these don't take too long.
func (p *Processor) largeTurn(ctx context.Context, ms []dedup.Message) (end func()) {
	for i := range ms {
		if p.memory != nil && len(ms[i].Value) >= largeBytes {
			end, _ = p.large.take(ctx, laneLease)
			return end
		}
	}
	return func() {}
}

// load takes memory, reads the first messages of claimed lanes, and gives back what they did not need. That the first
// of them may be larger than what was taken only Postgres knows: while one is, no other lane worker of the process
// loads any.
func (p *Processor) load(ctx context.Context, claims []dedup.Claim, each int) (*dedup.Tx, *dedup.Batch, *loan, error) {
	l := &loan{account: p.memory, large: func() {}}
	if l.account != nil {
		l.bytes = max(1, min(dedup.LoadBytes, l.account.Limit()/8))
		waiting, cancel := context.WithTimeoutCause(ctx, laneLease/2, errMemory)
		err := l.account.Take(waiting, l.bytes, 0)
		cancel()
		if err != nil {
			return nil, nil, nil, err
		}
	}
	end, ok := p.large.take(ctx, laneLease/2)
	if !ok {
		l.give()
		return nil, nil, nil, errMemory
	}
	tx, batch, err := p.cfg.Store.LoadLanes(ctx, claims, each, l.bytes)
	if err != nil {
		end()
		l.give()
		return nil, nil, nil, err
	}
	if l.fit(batch.Entries) {
		end()
	} else {
		l.large = end
	}
	return tx, batch, l, nil
}

// fit makes the loan as large as the messages, and says whether they are within what was taken.
func (l *loan) fit(entries []dedup.Entry) bool {
	if l.account == nil {
		return true
	}
	size := 0
	for i := range entries {
		size += entryBytes + entries[i].Message.Size()
	}
	more := size - l.bytes
	l.account.Add(more)
	l.bytes = size
	return more <= 0
}

// give gives all of it back.
func (l *loan) give() {
	if l.account != nil {
		l.account.Give(l.bytes)
	}
	l.bytes = 0
	l.large()
	l.large = func() {}
}

// split gives a message's part of the loan to somebody else.
func (l *loan) split(m *dedup.Message) *loan {
	part := &loan{account: l.account, large: func() {}}
	if m != nil && l.account != nil {
		part.bytes = min(l.bytes, entryBytes+m.Size())
		l.bytes -= part.bytes
	}
	return part
}
