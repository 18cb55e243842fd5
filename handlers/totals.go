package handlers

import (
	"sync/atomic"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

// Totals count what a Processor has done since it was made. Each message counts once for every handler of its topic,
// and only what was committed counts: not a batch whose commit's answer was lost, though it may have taken effect.
type Totals struct {
	// Batches are transactions over messages that came.
	Batches int64
	// Handled messages took effect: with their batch, from a lane, or by a detached handler's call.
	Handled int64
	// Failed are tries of a message that its handler failed on, also those that Unavailable has count no attempt.
	Failed int64
	// Duplicates were seen before.
	Duplicates int64
	// Parked messages were put in a lane when they came: theirs was not the turn, they failed, or their handler is a
	// detached one. Those that fail again in their lane are not counted again.
	Parked int64
	// Dead messages went to the dead letters, at once or from a lane.
	Dead int64
	// Conflicts came under an ID that was seen with another content.
	Conflicts int64
	// Buried messages are copies of dead letters.
	Buried int64
}

// Totals gives the counts so far. It is cheap.
func (p *Processor) Totals() Totals {
	all := Totals{Batches: p.batches.Load()}
	for _, counts := range p.totals {
		all.add(counts.read())
	}
	return all
}

// TotalsOf gives the counts so far of one handler, but for Batches, which are all handlers'.
func (p *Processor) TotalsOf(handler string) Totals {
	of := Totals{Batches: p.batches.Load()}
	for target, counts := range p.totals {
		if target.name == handler {
			of.add(counts.read())
		}
	}
	return of
}

func (t *Totals) add(o Totals) {
	t.Batches += o.Batches
	t.Handled += o.Handled
	t.Failed += o.Failed
	t.Duplicates += o.Duplicates
	t.Parked += o.Parked
	t.Dead += o.Dead
	t.Conflicts += o.Conflicts
	t.Buried += o.Buried
}

// totals are one handler's.
type totals struct {
	handled, failed, duplicates, parked, dead, conflicts, buried atomic.Int64
}

// came counts what became of a batch's messages.
func (t *totals) came(r Result) {
	t.handled.Add(int64(r.New))
	t.duplicates.Add(int64(r.Duplicates))
	t.parked.Add(int64(r.Parked))
	t.dead.Add(int64(r.Dead))
	t.conflicts.Add(int64(r.Conflicts))
	t.buried.Add(int64(r.Buried))
}

func (t *totals) read() Totals {
	return Totals{Handled: t.handled.Load(), Failed: t.failed.Load(), Duplicates: t.duplicates.Load(),
		Parked: t.parked.Load(), Dead: t.dead.Load(), Conflicts: t.conflicts.Load(), Buried: t.buried.Load()}
}

// committed counts what became of a batch's messages in its handlers' turns, once the transaction has committed.
func (p *Processor) committed(ms []dedup.Message, entries []dedup.Entry, runs []run) (sum Result) {
	if len(ms) == 0 {
		return sum
	}
	p.batches.Add(1)
	for i := range runs {
		of, target := entries[i*len(ms):(i+1)*len(ms)], runs[i].target
		r := count(of)
		p.totals[target].came(r)
		p.telemetry.came(target, ms[0].Topic, r)
		if r.New > 0 {
			p.work.handled(target)
		}
		if r.Dead > 0 {
			p.telemetry.died(target, of)
		}
		sum.add(r)
		if target.detached == nil {
			p.circuits[target].committed(time.Now(), of, r.New, runs[i].away)
		}
	}
	for i := range runs {
		p.failed(&runs[i])
	}
	p.tellRefused(ms, entries)
	return sum
}

// tellRefused logs a batch's messages that had no usable ID and went to the dead letters, a line for each reason.
func (p *Processor) tellRefused(ms []dedup.Message, entries []dedup.Entry) {
	refused := map[identity.Reason][]*dedup.Message{}
	for i := range ms { // those of the topic's first handler: the others' have the same fate
		m := &ms[i]
		if m.Reason != "" && entries[i].State == dedup.Dead && entries[i].Outcome == dedup.New {
			refused[m.Reason] = append(refused[m.Reason], m)
		}
	}
	for reason, list := range refused {
		p.cfg.Logger.Warn("messages without a usable ID went to the dead letters", "topic", list[0].Topic,
			"reason", string(reason), "messages", len(list), "batch", len(ms), "first", list[0].Place(),
			"why", list[0].Sought, "do", refusedAdvice(reason))
	}
}

func refusedAdvice(reason identity.Reason) string {
	if reason == identity.ReasonBadTenant {
		return "have producers send the tenant's header once, " +
			"or correct the topic's tenant_header; then redrive or discard"
	}
	return "set the topic's id to where its producers write one (header:NAME, json:/POINTER, cloudevents, key, " +
		"hash), or have them write it; firstseen dead list shows what is there"
}

// settled counts what became of parked messages, once it is committed.
func (p *Processor) settled(r *run, entries []dedup.Entry) {
	handled, dead := 0, 0
	for i := range entries {
		switch entries[i].State {
		case dedup.Processed:
			handled++
		case dedup.Dead:
			dead++
		}
	}
	if handled > 0 {
		p.work.handled(r.target)
	}
	p.totals[r.target].handled.Add(int64(handled))
	p.totals[r.target].dead.Add(int64(dead))
	p.telemetry.left(r.target, handled, dead)
	if dead > 0 {
		p.telemetry.died(r.target, entries)
	}
	if r.target.detached == nil {
		p.circuits[r.target].committed(time.Now(), entries, handled, r.away)
	}
	p.failed(r)
}

func (p *Processor) failed(r *run) {
	p.totals[r.target].failed.Add(int64(r.tries.Sum()))
	p.telemetry.failed(r.target, r.tries)
}

func (r *Result) add(o Result) {
	r.New += o.New
	r.Duplicates += o.Duplicates
	r.Parked += o.Parked
	r.Dead += o.Dead
	r.Conflicts += o.Conflicts
	r.Buried += o.Buried
}
