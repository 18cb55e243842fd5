package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// ToldHolds are the holds of one process, as it told them last.
type ToldHolds struct {
	Consumer string
	Owner    string
	ToldAt   time.Time
	Holds    []holds.Hold
	// Stale says that they are older than HoldsStale.
	Stale bool
}

const toldHoldsSQL = `
select consumer, owner, told_at, holds, told_at < now() - $1::interval
from firstseen.holds
order by consumer, owner, member
limit 1000`

// Holds lists what waits in all processes that consume into the schema, as they told last.
func (in *Inbox) Holds(ctx context.Context) ([]ToldHolds, error) {
	found, err := db.LookAll(ctx, in.db, nil, func(row pgx.CollectableRow) (t ToldHolds, err error) {
		err = row.Scan(&t.Consumer, &t.Owner, &t.ToldAt, &t.Holds, &t.Stale)
		return t, err
	}, toldHoldsSQL, dedup.HoldsStale)
	if err != nil {
		return nil, fmt.Errorf("list holds: %w", err)
	}
	return found, nil
}
