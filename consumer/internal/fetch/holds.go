package fetch

import (
	"time"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/dedup/holds"
)

// HeldIn has the partition's holds shown by a registry.
func (p *Partition) HeldIn(r *holds.Registry) {
	name := p.String()
	for _, place := range []**holds.Place{&p.waits, &p.stopped, &p.openTx} {
		*place = r.Place(holds.PartitionKind, name)
	}
}

// WaitFor says that the worker waits before it tries again. The next success ends that.
func (p *Partition) WaitFor(err error, attrs ...any) {
	p.waits.Wait(holding.CodeOf(err), err, attrs...)
}

// StopFor says that nothing more is fetched. Where it may be mended, the next fetch that brings something ends that.
func (p *Partition) StopFor(err error, attrs ...any) {
	p.stopped.Wait(holding.CodeOf(err), err, attrs...)
}

// Unheld says that the partition is another owner's to wait for.
func (p *Partition) Unheld() {
	p.waits.Leave()
	p.stopped.Leave()
	p.openTx.Leave()
}

// starve says that nothing can be fetched for want of memory, where the partition has nothing else to do.
func (p *Partition) starve(err error) {
	p.mu.Lock()
	idle := p.reading && !p.resting && p.bytes+p.taken.Total() == 0
	p.mu.Unlock()
	if idle && p.stopped.Hold() == nil {
		p.StopFor(holding.As(holds.Memory, err))
	}
}

// answered takes in that a fetch was answered, and whether it brought anything new.
func (p *Partition) answered(fresh bool) {
	h := p.stopped.Hold()
	if h != nil && !h.Entry().Decision && (fresh || h.Code != holds.Undecodable) {
		p.stopped.End()
	}
}

// Held returns the partition's hold; nil: it waits for nothing.
func (p *Partition) Held() *holds.Hold {
	if h := p.stopped.Hold(); h != nil {
		return h
	}
	return p.waits.Hold()
}

// Progress says that the worker goes on, and the timestamp of the first message that it has left; zero: none.
func (p *Partition) Progress(front time.Time) {
	p.waits.End()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front = front
}
