package dedup

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// StatedPosition is a position as it is stored.
type StatedPosition struct {
	Topic     string
	Partition int32
	// Next is the offset to process next; -1 where it was never set.
	Next    int64
	TopicID uuid.UUID // zero: none
	// LeaderEpoch is that of the last message before Next; nil: not known.
	LeaderEpoch *int32
	Epoch       int64
	// Fruitless is how often the position has been acquired since it last moved.
	Fruitless int
	Owner     string
	UpdatedAt time.Time
}

const positionsSQL = `
select topic, "partition", coalesce(next_offset, -1), coalesce(topic_id, '00000000-0000-0000-0000-000000000000'::uuid),
	case when leader_epoch_at = next_offset then leader_epoch end, epoch,
	fruitless, coalesce(owner, ''), updated_at
from firstseen.positions
where consumer = $1
order by topic, "partition"
limit 100000`

// Positions lists a consumer's positions, sorted.
func (s *Store) Positions(ctx context.Context, consumer string) (found []StatedPosition, err error) {
	found, err = db.LookAll(ctx, s.db, nil, pgx.RowToStructByPos[StatedPosition], positionsSQL, consumer)
	if err != nil {
		return nil, fmt.Errorf("list the positions of %s: %w", consumer, err)
	}
	return found, nil
}
