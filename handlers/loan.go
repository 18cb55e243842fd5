package handlers

import (
	"context"
	"errors"
	"unsafe"

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
}

const (
	// entryBytes is about what a parked message takes beside its key, value and headers.
	entryBytes = 1 << 10
	// headerBytes is a header's size in memory, without its key and value.
	headerBytes = int(unsafe.Sizeof(dedup.Header{}))
)

// loaded is the memory that a message takes when it is loaded.
func loaded(m *dedup.Message) int { return entryBytes + m.Size() + headerBytes*len(m.Headers) }

var errMemory = errors.New("all memory for messages is in use")

// memoryPatience bounds the lanes' wait for memory: it is shorter than their lease, in which nobody else takes them.
const memoryPatience = laneLease / 2

// load reads the first messages of claimed lanes, within the memory that it takes for them beforehand. How large they
// are only Postgres knows: what is large of them comes last, and what is not needed is given back.
func (p *Processor) load(ctx context.Context, claims []dedup.Claim, each int) (*dedup.Tx, *dedup.Batch, *loan, error) {
	l := &loan{account: p.memory}
	most := 0
	if l.account != nil {
		most = max(1, min(dedup.LoadBytes, l.account.Limit()/8))
		if err := l.take(ctx, most); err != nil {
			return nil, nil, nil, err
		}
	}
	tx, batch, err := p.cfg.Store.LoadLanes(ctx, claims, each, most)
	if err == nil {
		l.fit(batch.Entries)
		if err = tx.LoadRest(ctx, func(n int) error { return l.take(ctx, n) }); err != nil {
			tx.Rollback(ctx)
		} else if p.decode(ctx, batch.Entries) {
			l.fit(batch.Entries)
		}
	}
	if err != nil {
		l.give()
		return nil, nil, nil, err
	}
	return tx, batch, l, nil
}

// fit makes the loan as large as the messages that are loaded.
func (l *loan) fit(entries []dedup.Entry) {
	if l.account == nil {
		return
	}
	size := 0
	for i := range entries {
		size += loaded(entries[i].Message)
	}
	l.account.Add(size - l.bytes)
	l.bytes = size
}

// take takes more, though it does not wait long. A large message may exceed the limit, as a fetched one may.
func (l *loan) take(ctx context.Context, n int) error {
	if n == 0 || l.account == nil {
		return nil
	}
	waiting, cancel := context.WithTimeoutCause(ctx, memoryPatience, errMemory)
	defer cancel()
	err := l.account.Take(waiting, n, n)
	if err == nil {
		l.bytes += n
	}
	return err
}

func (l *loan) give() {
	if l.account != nil {
		l.account.Give(l.bytes)
	}
	l.bytes = 0
}

// split gives a message's part of the loan to somebody else.
func (l *loan) split(m *dedup.Message) *loan {
	part := &loan{account: l.account}
	if m != nil && l.account != nil {
		part.bytes = min(l.bytes, loaded(m))
		l.bytes -= part.bytes
	}
	return part
}
