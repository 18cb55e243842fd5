package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
func (in *Inbox) Positions(ctx context.Context, consumer string) (found []StatedPosition, err error) {
	found, err = db.LookAll(ctx, in.db, nil, pgx.RowToStructByPos[StatedPosition], positionsSQL, consumer)
	if err != nil {
		return nil, fmt.Errorf("list the positions of %s: %w", consumer, err)
	}
	return found, nil
}

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
func (in *Inbox) Standings(ctx context.Context) ([]TopicStanding, error) {
	found, err := db.Collect(ctx, in.db, func(row pgx.CollectableRow) (p TopicStanding, err error) {
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

// ErrPositionInUse says that a position can't be moved because its owner's transaction stays open.
var ErrPositionInUse = errors.New("a transaction of the position's owner is still open: stop that process, or end the transaction")

// ResetPositions moves a consumer's positions in a topic by hand, all in one transaction: next has the offset to process
// next for each partition, topicID the topic's identity (zero: none). Whoever still owns one of them is fenced. Each is
// noted in the audit, with the position before. An open transaction on one of them is waited for, for 10 seconds.
//
// Where messages are skipped that no handler has seen, nobody will give them to one: that is the caller's decision.
func (in *Inbox) ResetPositions(ctx context.Context, consumer, topic string, topicID uuid.UUID, next map[int32]int64, by By) error {
	if err := by.validate(); err != nil {
		return err
	}
	partitions, offsets := make([]int32, 0, len(next)), make([]int64, 0, len(next))
	for p, offset := range next {
		partitions, offsets = append(partitions, p), append(offsets, offset)
	}
	const sql = `select firstseen.reset_position($1, $2, $3, $4, $5, $6, $7, $8)`
	err := in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, in.db.SQL(sql), in.db.Inbox, consumer, topic, db.OrNull(topicID), partitions, offsets, by.Actor, by.Why)
		return err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" { // lock_not_available
		err = fmt.Errorf("%w: %w", ErrPositionInUse, err)
	}
	if err != nil {
		return fmt.Errorf("reset positions of %s in topic %s: %w", consumer, topic, err)
	}
	return nil
}
