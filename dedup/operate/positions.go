package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Position is a consumer's position in a partition, as it is stored.
type Position struct {
	Consumer  string
	Topic     string
	Partition int32
	// Next is the offset to process next; -1 where the consumer has none yet.
	Next    int64
	TopicID uuid.UUID // zero: none
	// LeaderEpoch is that of the last message before Next; nil: not known.
	LeaderEpoch *int32
	Epoch       int64
	// Owner is who acquired the position last, and AcquiredAt when. MovedAt is when it moved last.
	Owner               string
	AcquiredAt, MovedAt time.Time
	// Fruitless counts the acquisitions since it moved.
	Fruitless int
	// Replay says that it is a replay's, which ends at ReplayTo.
	Replay   bool
	ReplayTo int64
}

// NextOrNil is Next, or nil where the consumer has none yet.
func (p *Position) NextOrNil() *int64 {
	if p.Next < 0 {
		return nil
	}
	return &p.Next
}

// Counts says that messages were processed up to Next which the consumer may be given again: it is no replay's that
// is over.
func (p *Position) Counts() bool {
	return p.Next >= 0 && (!p.Replay || p.Next < p.ReplayTo)
}

const positionsSQL = `
select consumer, topic, "partition", coalesce(p.next_offset, -1), p.topic_id,
	case when p.leader_epoch_at = p.next_offset then p.leader_epoch end, p.epoch,
	coalesce(p.owner, ''), p.acquired_at, p.updated_at, p.fruitless, r.to_offset is not null, coalesce(r.to_offset, 0)
from firstseen.positions p
left join firstseen.replays r using (consumer, topic, "partition")
`

func scanPosition(row pgx.CollectableRow) (p Position, err error) {
	var topicID *uuid.UUID
	var acquired *time.Time
	err = row.Scan(&p.Consumer, &p.Topic, &p.Partition, &p.Next, &topicID, &p.LeaderEpoch, &p.Epoch,
		&p.Owner, &acquired, &p.MovedAt, &p.Fruitless, &p.Replay, &p.ReplayTo)
	p.TopicID, p.AcquiredAt = db.Deref(topicID), db.Deref(acquired)
	return p, err
}

// MaxPositions caps the positions of a consumer that are listed.
const MaxPositions = 100_000

// Positions lists a consumer's positions, sorted.
func (in *Inbox) Positions(ctx context.Context, consumer string) ([]Position, error) {
	found, err := db.LookAll(ctx, in.db, nil, scanPosition,
		positionsSQL+`where consumer = $1 order by topic, "partition" limit $2`, consumer, MaxPositions)
	if err != nil {
		return nil, fmt.Errorf("list the positions of %s: %w", consumer, err)
	}
	return found, nil
}

// PositionsIn returns a consumer's next offsets in a topic as it is now, by partition. A position in a topic of that
// name that was deleted since says nothing but that there is one: stale.
func (in *Inbox) PositionsIn(ctx context.Context, consumer, topic string, topicID uuid.UUID) (next map[int32]int64,
	stale bool, err error) {
	positions, err := in.Positions(ctx, consumer)
	if err != nil {
		return nil, false, err
	}
	next = map[int32]int64{}
	for _, p := range positions {
		switch {
		case p.Topic != topic || p.Next < 0:
		case p.TopicID != uuid.Nil && topicID != uuid.Nil && p.TopicID != topicID:
			stale = true
		default:
			next[p.Partition] = p.Next
		}
	}
	return next, stale, nil
}

// notRelaysSQL leaves out what relays of an outbox have: their topics are not read, and their shards no partitions.
const notRelaysSQL = `where not (p.consumer like 'relay/%' and exists (
	select from firstseen.outbox_shards o where o.topic = p.topic and o.shard = p."partition")) `

// AllPositions lists the positions of all consumers of the schema, whichever inbox they use, by consumer, topic and
// partition, those of replays last, but for an outbox's relays: up to a limit, and all of them where it is 0.
func (in *Inbox) AllPositions(ctx context.Context, limit int) ([]Position, error) {
	most := &limit
	if limit == 0 {
		most = nil
	}
	found, err := db.Collect(ctx, in.db, scanPosition, positionsSQL+notRelaysSQL+
		`order by r.to_offset is not null, consumer, topic, "partition" limit $1`, most)
	if err != nil {
		return nil, fmt.Errorf("list positions: %w", err)
	}
	return found, nil
}

// ErrPositionInUse says that a position can't be moved because its owner's transaction stays open.
var ErrPositionInUse = errors.New("a transaction of the position's owner is still open: " +
	"stop that process, or end the transaction")

// ResetPositions moves a consumer's positions in a topic by hand, all in one transaction: next has the offset to
// process next for each partition, topicID the topic's identity (zero: none). Whoever still owns one of them is
// fenced. Each is noted in the audit, with the position before. An open transaction on one of them is waited for,
// for 10 seconds.
//
// Where messages are skipped that no handler has seen, nobody will give them to one: that is the caller's decision.
func (in *Inbox) ResetPositions(ctx context.Context, consumer, topic string, topicID uuid.UUID, next map[int32]int64,
	by By) error {
	if err := by.validate(); err != nil {
		return err
	}
	partitions, offsets := make([]int32, 0, len(next)), make([]int64, 0, len(next))
	for p, offset := range next {
		partitions, offsets = append(partitions, p), append(offsets, offset)
	}
	const sql = `select firstseen.reset_position($1, $2, $3, $4, $5, $6, $7, $8)`
	err := in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, in.db.SQL(sql), in.db.Inbox, consumer, topic, db.OrNull(topicID), partitions, offsets,
			by.Actor, by.Why)
		return err
	})
	if failure.Of(err) == failure.Locked {
		err = fmt.Errorf("%w: %w", ErrPositionInUse, err)
	}
	if err != nil {
		return fmt.Errorf("reset positions of %s in topic %s: %w", consumer, topic, err)
	}
	return nil
}
