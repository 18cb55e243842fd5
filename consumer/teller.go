package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/google/uuid"
)

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

// owner names this process beside the positions it holds, for people.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}
