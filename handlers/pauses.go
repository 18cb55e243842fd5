package handlers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
)

// pauses has the operators' pauses in the store's inbox, as last looked up. The lanes of what is paused need no
// knowledge of it: claim_lanes passes over them.
type pauses struct {
	looking sync.Mutex // held while they are looked up
	now     atomic.Pointer[paused]
}

// paused is one look at the pauses. It does not change.
type paused struct {
	list    []dedup.Pause
	changed chan struct{} // closed when a later look has found other ones
}

func (p *pauses) get() *paused { return p.now.Load() }

func (p *paused) has(what ...dedup.Pause) bool {
	return slices.ContainsFunc(p.list, func(at dedup.Pause) bool {
		return slices.ContainsFunc(what, func(w dedup.Pause) bool { return same(at, w) })
	})
}

func same(a, b dedup.Pause) bool {
	return a.Kind == b.Kind && a.Topic == b.Topic && a.Partition == b.Partition && a.Handler == b.Handler
}

// Pauses returns the operators' pauses in the inbox, as last looked up: see LookUpPauses. Nobody may change the slice.
func (p *Processor) Pauses() []dedup.Pause { return p.pauses.get().list }

// Paused says whether a partition is to rest, because it or its topic is paused. When that may have changed, changed
// is closed.
func (p *Processor) Paused(topic string, partition int32) (is bool, changed <-chan struct{}) {
	now := p.pauses.get()
	return len(now.list) > 0 && now.has(dedup.Pause{Kind: dedup.PauseTopic, Topic: topic},
		dedup.Pause{Kind: dedup.PausePartition, Topic: topic, Partition: partition}), now.changed
}

func (p *Processor) rests(target *registered) bool {
	now := p.pauses.get()
	return len(now.list) > 0 && now.has(dedup.Pause{Kind: dedup.PauseHandler, Handler: target.name})
}

// lookUpTimeout bounds the wait for an answer about pauses.
const lookUpTimeout = 5 * time.Second

// LookUpPauses asks Postgres what is paused. RunLanes does so every Config.PausePoll. On error the last known pauses
// stay; before the first look there are none.
func (p *Processor) LookUpPauses(ctx context.Context) error {
	p.pauses.looking.Lock()
	defer p.pauses.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	list, err := p.cfg.Store.Pauses(ctx)
	if err != nil {
		return err
	}
	before := p.pauses.get()
	if slices.Equal(list, before.list) {
		return nil
	}
	p.pauses.now.Store(&paused{list: list, changed: make(chan struct{})})
	close(before.changed)
	p.tell(before.list, list)
	return nil
}

// tell logs what was paused and resumed since the look before.
func (p *Processor) tell(before, now []dedup.Pause) {
	without := func(list []dedup.Pause) func(dedup.Pause) bool {
		return func(w dedup.Pause) bool { return (&paused{list: list}).has(w) }
	}
	for _, w := range slices.DeleteFunc(slices.Clone(now), without(before)) {
		p.cfg.Logger.Warn("paused by an operator", "what", w.String(), "actor", w.Actor, "why", w.Why, "at", w.At)
	}
	for _, w := range slices.DeleteFunc(slices.Clone(before), without(now)) {
		p.cfg.Logger.Info("resumed by an operator", "what", w.String())
	}
}

// followPauses looks pauses up now and then, until ctx ends.
func (p *Processor) followPauses(ctx context.Context) {
	poll := time.NewTicker(p.cfg.PausePoll)
	defer poll.Stop()
	hold := p.cfg.Holds.Place(holds.InboxKind, p.cfg.Store.Inbox())
	defer hold.Leave()
	for ctx.Err() == nil {
		switch err := p.LookUpPauses(ctx); {
		case err == nil:
			hold.End()
		case ctx.Err() == nil:
			hold.Wait(holds.OfPostgres(err), fmt.Errorf("look up pauses; the last known ones stay: %w", err))
		}
		select {
		case <-ctx.Done():
		case <-poll.C:
		}
	}
}

// unseen describes messages that are parked before their handler sees them.
type unseen struct {
	alone       bool   // each is to be handled by itself; a detached handler's are anyway
	reason, why string // empty where it is no failure that they wait for
}

// parks says whether a handler sees no message of the batch: it is not for it to see, the handler is detached or
// paused, or what it needs is away.
func (p *Processor) parks(b *Batch, target *registered) (how unseen, yes bool) {
	why, stops := p.circuits[target].stops()
	switch {
	case target.detached != nil:
		return unseen{}, true
	case stops:
		return unseen{b.Apart, reasonUnavailable, why}, true
	}
	return unseen{alone: b.Apart}, b.Apart || b.Queued || !b.Replayed && p.rests(target)
}
