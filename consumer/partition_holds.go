package consumer

import (
	"time"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/dedup/holds"
)

// heldIn has the partition's holds shown by a registry.
func (p *partition) heldIn(r *holds.Registry) {
	name := p.String()
	for _, place := range []**holds.Place{&p.waits, &p.stopped, &p.openTx} {
		*place = r.Place(holds.PartitionKind, name)
	}
}

// waitFor says that the worker waits before it tries again. The next success ends that.
func (p *partition) waitFor(err error, attrs ...any) {
	p.waits.Wait(holding.CodeOf(err), err, attrs...)
}

// stopFor says that nothing more is fetched. Where it may be mended, the next fetch that brings something ends that.
func (p *partition) stopFor(err error, attrs ...any) {
	p.stopped.Wait(holding.CodeOf(err), err, attrs...)
}

// unheld says that the partition is another owner's to wait for.
func (p *partition) unheld() {
	p.waits.Leave()
	p.stopped.Leave()
	p.openTx.Leave()
}

// starve says that nothing can be fetched for want of memory, where the partition has nothing else to do.
func (p *partition) starve(err error) {
	p.mu.Lock()
	idle := p.reading && !p.resting && p.bytes+p.taken.Total() == 0
	p.mu.Unlock()
	if idle && p.stopped.Hold() == nil {
		p.stopFor(holding.As(holds.Memory, err))
	}
}

// answered takes in that a fetch was answered, and whether it brought anything new.
func (p *partition) answered(fresh bool) {
	h := p.stopped.Hold()
	if h != nil && !h.Entry().Decision && (fresh || h.Code != holds.Undecodable) {
		p.stopped.End()
	}
}

// held is what the partition waits for; nil: nothing.
func (p *partition) held() *holds.Hold {
	if h := p.stopped.Hold(); h != nil {
		return h
	}
	return p.waits.Hold()
}

// progress says that the worker goes on, and the timestamp of the first message that it has left; zero: none.
func (p *partition) progress(front time.Time) {
	p.waits.End()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front = front
}
