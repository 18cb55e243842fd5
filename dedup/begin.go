package dedup

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

const knownTopicSQL = `select exists (select from firstseen.positions where consumer = $1 and topic = $2 and next_offset is not null)`

// KnowsTopic says whether the consumer has a position in any partition of the topic.
func (s *Store) KnowsTopic(ctx context.Context, consumer, topic string) (bool, error) {
	var known bool
	err := db.Answered(ctx, s.cfg.AnswerTimeout, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, s.db.SQL(knownTopicSQL), consumer, topic).Scan(&known)
	})
	if err != nil {
		return false, fmt.Errorf("look for positions of %s in topic %s: %w", consumer, topic, err)
	}
	return known, nil
}

const beginTopicSQL = `select firstseen.begin_topic($1, $2, $3, $4, $5)`

// Begin sets the positions of all partitions of a topic that is new to the consumer, in one transaction: next has the
// first offset of each. Where the consumer knows the topic it does nothing and returns false. So whoever finds a
// partition without a position later knows that the partition was added, or its position lost. leaderEpochs has the leader
// epoch of the last message before, for those of which it is known.
func (s *Store) Begin(ctx context.Context, consumer, topic string, topicID uuid.UUID, next map[int32]int64, leaderEpochs map[int32]int32) (begun bool, err error) {
	partitions, offsets := make([]int32, 0, len(next)), make([]int64, 0, len(next))
	for p, offset := range next {
		partitions, offsets = append(partitions, p), append(offsets, offset)
	}
	known, epochs := make([]int32, 0, len(leaderEpochs)), make([]int32, 0, len(leaderEpochs))
	for p, epoch := range leaderEpochs {
		known, epochs = append(known, p), append(epochs, epoch)
	}
	var id *uuid.UUID
	if topicID != uuid.Nil {
		id = &topicID
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, s.db.SQL(beginTopicSQL), consumer, topic, id, partitions, offsets).Scan(&begun)
		if err != nil || !begun || len(known) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, s.db.SQL(setLeaderEpochSQL), consumer, topic, known, epochs)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("begin topic %s for %s: %w", topic, consumer, err)
	}
	return begun, nil
}

// ForgetPartitions deletes the positions of partitions that a topic does not have any more because it was made anew with
// fewer: those from partitions on that were set in another topic than topicID. It returns how many there were.
func (s *Store) ForgetPartitions(ctx context.Context, consumer, topic string, topicID uuid.UUID, partitions int) (gone int, err error) {
	const sql = `select firstseen.forget_partitions($1, $2, $3, $4)`
	if err := s.db.Pool.QueryRow(ctx, s.db.SQL(sql), consumer, topic, topicID, partitions).Scan(&gone); err != nil {
		return 0, fmt.Errorf("forget positions of %s in topic %s: %w", consumer, topic, db.RightsError(err))
	}
	return gone, nil
}
