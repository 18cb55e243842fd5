package holding

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
)

// Teller writes down in Postgres what waits in this process, for those who look from outside. While Postgres is away
// they see that themselves.
type Teller struct {
	Registry *holds.Registry
	Store    *dedup.Store
	Consumer string
	Log      *slog.Logger

	member uuid.UUID
	told   []holds.Hold
	toldAt time.Time
}

// tellTimeout bounds the wait for Postgres.
const tellTimeout = 5 * time.Second

// Tell tells until ctx ends, and then that nothing waits here any more.
func Tell(ctx context.Context, t Teller) {
	t.member = uuid.New()
	for more := true; more; {
		more = wait.Sleep(ctx, time.Second)
		list := t.Registry.List()
		if !more {
			list = nil
		}
		if !slices.EqualFunc(list, t.told, sameHold) || len(list) > 0 && time.Since(t.toldAt) > dedup.HoldsStale/3 {
			t.tell(ctx, list)
		}
	}
}

func (t *Teller) tell(ctx context.Context, list []holds.Hold) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	if err := t.Store.TellHolds(ctx, t.Consumer, t.member, Owner(), list); err != nil {
		t.Log.Debug("holds not told to Postgres", "error", err)
		return
	}
	t.told, t.toldAt = list, time.Now()
}

// sameHold says whether two are the same but for their tries.
func sameHold(a, b holds.Hold) bool {
	return a.Subject == b.Subject && a.Code == b.Code && a.Since.Equal(b.Since)
}

// Owner names this process, and no other: that of before in a container had the same host and number.
var Owner = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d (%s)", host, os.Getpid(), uuid.NewString()[:8])
})
