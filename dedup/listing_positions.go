package dedup

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// TopicStanding is a consumer's position in a partition of a topic.
type TopicStanding struct {
	Topic     string
	Partition int32
	Standing
}

// maxStandings bounds what Standings gives.
const maxStandings = 100_000

const allStandingsSQL = `
select topic, "partition", consumer, next_offset, coalesce(owner, ''), acquired_at, updated_at, fruitless
from firstseen.positions
order by consumer, topic, "partition"
limit $1`

// Standings lists the positions of all consumers of the schema, whichever inbox they use, by consumer, topic and
// partition: at most 100000.
func (s *Store) Standings(ctx context.Context) ([]TopicStanding, error) {
	found, err := db.Collect(ctx, s.db, func(row pgx.CollectableRow) (p TopicStanding, err error) {
		var acquired *time.Time
		err = row.Scan(&p.Topic, &p.Partition, &p.Consumer, &p.Next, &p.Owner, &acquired, &p.MovedAt, &p.Fruitless)
		p.AcquiredAt = db.Deref(acquired)
		return p, err
	}, allStandingsSQL, maxStandings)
	if err != nil {
		return nil, fmt.Errorf("list positions: %w", err)
	}
	return found, nil
}
