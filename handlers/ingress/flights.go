package ingress

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// flights are the messages that are worked on in this process. A twin waits here and takes no connection: in Postgres
// it would wait for the first one's transaction, with one of its own.
type flights struct {
	mu   sync.Mutex
	open map[flight]chan struct{} // closed when it has landed
}

// flight is a message of a tenant.
type flight struct {
	tenant string
	id     uuid.UUID
}

// take takes messages, when all of them are free, until leave is called. It takes them in one order, so that nobody
// waits in a circle.
func (f *flights) take(ctx context.Context, tenant string, ids []uuid.UUID) (leave func(), err error) {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return strings.Compare(string(a[:]), string(b[:])) })
	ids = slices.Compact(ids)
	var taken []flight
	leave = func() { f.land(taken) }
	for _, id := range ids {
		if err := f.begin(ctx, flight{tenant, id}); err != nil {
			leave()
			return nil, err
		}
		taken = append(taken, flight{tenant, id})
	}
	return leave, nil
}

func (f *flights) begin(ctx context.Context, of flight) error {
	for {
		f.mu.Lock()
		landed, busy := f.open[of]
		if !busy {
			f.open[of] = make(chan struct{})
		}
		f.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-landed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *flights) land(all []flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range all {
		close(f.open[of])
		delete(f.open, of)
	}
}
