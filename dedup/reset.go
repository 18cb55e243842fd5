package dedup

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// ErrPositionInUse says that a position can't be moved because its owner's transaction stays open.
var ErrPositionInUse = errors.New("a transaction of the position's owner is still open: stop that process, or end the transaction")

// ResetPositions moves a consumer's positions in a topic by hand, all in one transaction: next has the offset to process
// next for each partition, topicID the topic's identity (zero: none). Whoever still owns one of them is fenced. Each is
// noted in the audit, with the position before. An open transaction on one of them is waited for, for 10 seconds.
//
// Where messages are skipped that no handler has seen, nobody will give them to one: that is the caller's decision.
func (s *Store) ResetPositions(ctx context.Context, consumer, topic string, topicID uuid.UUID, next map[int32]int64, by By) error {
	if err := by.validate(); err != nil {
		return err
	}
	partitions, offsets := make([]int32, 0, len(next)), make([]int64, 0, len(next))
	for p, offset := range next {
		partitions, offsets = append(partitions, p), append(offsets, offset)
	}
	const sql = `select firstseen.reset_position($1, $2, $3, $4, $5, $6, $7, $8)`
	err := s.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.SQL(sql), s.cfg.Inbox, consumer, topic, db.OrNull(topicID), partitions, offsets, by.Actor, by.Why)
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
