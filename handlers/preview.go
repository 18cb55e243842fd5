package handlers

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
)

// PreviewRemembers caps the IDs that a Preview can remember, which takes it about 100 MiB.
const PreviewRemembers = 1 << 20

// Preview tells what Process would make of messages, and changes nothing. It is safe for concurrent use.
type Preview struct {
	p    *Processor
	only string

	mu     sync.Mutex
	scopes map[dedup.ScopeKey]int32
	fresh  map[previewed]uint64 // what would be new, with a hash of its fingerprint; 0: it has none
	seed   maphash.Seed
	full   bool
}

// previewed is a message for one scope, by the preview's own number of it.
type previewed struct {
	scope int32
	id    uuid.UUID
}

// Preview begins one, of one handler or, without its name, of all of the messages' topic.
func (p *Processor) Preview(only string) *Preview {
	return &Preview{p: p, only: only, scopes: map[dedup.ScopeKey]int32{}, fresh: map[previewed]uint64{}, seed: maphash.MakeSeed()}
}

// Full says that more IDs were new than a Preview remembers: a second copy of a further one counted as new too, unless
// it came in the same call of Add.
func (v *Preview) Full() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.full
}

// Add counts messages of one partition, after all that were added before. Whether a handler would fail, or find an
// earlier message of a key unfinished, is not known: those are New. Dead are the messages without a usable ID.
func (v *Preview) Add(ctx context.Context, ms []dedup.Message) (Result, error) {
	if len(ms) == 0 {
		return Result{}, nil
	}
	targets := v.p.cfg.Handlers.only(v.only, ms[0].Topic)
	if len(targets) == 0 {
		return Result{}, fmt.Errorf("preview %s: %w", ms[0].Topic, noHandler(v.only))
	}
	keyOf := map[int32]dedup.ScopeKey{}
	all, _, err := entries(ctx, ms, targets, func(ctx context.Context, keys []dedup.ScopeKey) (dedup.Scopes, error) {
		ids, err := v.p.cfg.Store.LookUpScopes(ctx, keys)
		for i, id := range ids {
			keyOf[id] = keys[i]
		}
		return dedup.Scopes{IDs: ids}, err
	})
	if err == nil {
		err = v.p.cfg.Store.Look(ctx, all)
	}
	if err != nil {
		return Result{}, err
	}
	v.compare(all, keyOf)
	for i := range all {
		if all[i].Message.Reason != "" {
			all[i].State = dedup.Dead
		}
	}
	return count(all), nil
}

// compare finds the copies of what was added before, and remembers what is new.
func (v *Preview) compare(all []dedup.Entry, keyOf map[int32]dedup.ScopeKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fresh := map[previewed]uint64{}
	for i := range all {
		e := &all[i]
		at, print := previewed{v.number(keyOf[e.Scope]), e.Message.ID}, v.hash(e.Message.Fingerprint)
		first, known := v.fresh[at]
		switch {
		case known && first != 0 && print != 0 && first != print:
			e.Outcome = dedup.Conflict
		case known:
			e.Outcome = dedup.Duplicate
		case e.Outcome == dedup.New:
			fresh[at] = print
		}
	}
	for at, print := range fresh {
		if v.full = v.full || len(v.fresh) >= PreviewRemembers; !v.full {
			v.fresh[at] = print
		}
	}
}

func (v *Preview) number(k dedup.ScopeKey) int32 {
	n, ok := v.scopes[k]
	if !ok {
		n = int32(len(v.scopes))
		v.scopes[k] = n
	}
	return n
}

func (v *Preview) hash(fingerprint []byte) uint64 {
	if fingerprint == nil {
		return 0
	}
	return max(1, maphash.Bytes(v.seed, fingerprint))
}
