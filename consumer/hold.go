package consumer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// Why a partition waits, as in PartitionStatus.Held and in the log's attribute "hold". Package holds says what each means, and
// what to do about it.
const (
	HeldPostgres    = holds.Postgres
	HeldReadOnly    = holds.ReadOnly
	HeldLocked      = holds.Locked
	HeldKafka       = holds.Kafka
	HeldHandler     = holds.Handler
	HeldMaxParked   = holds.MaxParked
	HeldUndecodable = holds.Undecodable
	HeldMemory      = holds.Memory
	HeldTopicReset  = holds.TopicReset
	HeldCutOff      = holds.CutOff
	HeldLost        = holds.Lost
	HeldDenied      = holds.Denied
)

// holdError is the reason why a partition waits, with its code.
type holdError struct {
	code string
	err  error
}

func (h *holdError) Error() string { return h.err.Error() }
func (h *holdError) Unwrap() error { return h.err }

// kafkaHold marks an error of Kafka's side.
func kafkaHold(err error) error {
	if err == nil {
		return nil
	}
	return &holdError{HeldKafka, err}
}

// holdCode gives the code of an error that has a partition wait. What says nothing else comes from Postgres, or from the
// way to it.
func holdCode(err error) string {
	var h *holdError
	switch {
	case errors.As(err, &h):
		return h.code
	case errors.Is(err, handlers.ErrNoConnection):
		return holds.Pool
	case errors.Is(err, handlers.ErrHandlerTimeout):
		return HeldHandler
	case errors.Is(err, dedup.ErrLocked):
		return HeldLocked
	}
	return holds.OfPostgres(err)
}

// heldIn has the partition's holds shown by a registry.
func (p *partition) heldIn(r *holds.Registry) {
	name := p.String()
	for _, place := range []**holds.Place{&p.waits, &p.stopped, &p.openTx} {
		*place = r.Place(holds.PartitionKind, name)
	}
}

// waitFor says that the worker waits before it tries again. The next success ends that.
func (p *partition) waitFor(err error, attrs ...any) { p.waits.Wait(holdCode(err), err, attrs...) }

// stopFor says that nothing more is fetched. Where it may be mended, the next fetch that brings something ends that.
func (p *partition) stopFor(err error, attrs ...any) { p.stopped.Wait(holdCode(err), err, attrs...) }

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
		p.stopFor(&holdError{HeldMemory, err})
	}
}

// answered takes in that a fetch was answered, and whether it brought anything new.
func (p *partition) answered(fresh bool) {
	h := p.stopped.Hold()
	if h != nil && !h.Entry().Decision && (fresh || h.Code != HeldUndecodable) {
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

// holdTeller writes down in Postgres what waits in this process, for those who look from outside. While Postgres is away
// they see that themselves.
type holdTeller struct {
	registry *holds.Registry
	store    *dedup.Store
	consumer string
	member   uuid.UUID
	log      *slog.Logger

	told   []holds.Hold
	toldAt time.Time
}

// tellHoldsTimeout bounds the wait for Postgres.
const tellHoldsTimeout = 5 * time.Second

// tellHolds tells until ctx ends, and then that nothing waits here any more.
func tellHolds(ctx context.Context, t holdTeller) {
	t.member = uuid.New()
	for more := true; more; {
		more = wait.Sleep(ctx, time.Second)
		list := t.registry.List()
		if !more {
			list = nil
		}
		if !slices.EqualFunc(list, t.told, sameHold) || len(list) > 0 && time.Since(t.toldAt) > dedup.HoldsStale/3 {
			t.tell(ctx, list)
		}
	}
}

func (t *holdTeller) tell(ctx context.Context, list []holds.Hold) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellHoldsTimeout)
	defer cancel()
	if err := t.store.TellHolds(ctx, t.consumer, t.member, owner(), list); err != nil {
		t.log.Debug("holds not told to Postgres", "error", err)
		return
	}
	t.told, t.toldAt = list, time.Now()
}

// sameHold says whether two are the same but for their tries.
func sameHold(a, b holds.Hold) bool {
	return a.Subject == b.Subject && a.Code == b.Code && a.Since.Equal(b.Since)
}
