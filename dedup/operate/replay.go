package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Replay is one reading again of ranges of a topic, as it is kept.
type Replay struct {
	// Consumer names its positions: ReplayConsumer.
	Consumer, Topic string
	TopicID         uuid.UUID // zero: none
	// Asked is the question in words, for people, and to tell the same question from another one.
	Asked   string
	BegunAt time.Time
	// Ranges are sorted by partition.
	Ranges []ReplayRange
}

// ReplayRange is one partition's part of a replay: the offsets from From up to, but not including, To.
type ReplayRange struct {
	Partition      int32
	From, To, Next int64 // what lies before Next is done
}

// Left counts the offsets that are not done yet.
func (r *ReplayRange) Left() int64 { return max(0, r.To-r.Next) }

// Left counts the offsets of all ranges that are not done yet.
func (r *Replay) Left() (n int64) {
	for i := range r.Ranges {
		n += r.Ranges[i].Left()
	}
	return n
}

// ReplayConsumer names the consumer under which the positions of a replay beside another are kept.
func ReplayConsumer(consumer, name string) string { return "replay/" + consumer + "/" + name }

// BeginReplay sets down a new replay, its positions at the beginnings of its ranges, and says whether it did: where
// there is one of that consumer in that topic already, that one stands, unless fresh. Whoever works on it is fenced
// then.
func (in *Inbox) BeginReplay(ctx context.Context, r *Replay, fresh bool) (begun bool, err error) {
	n := len(r.Ranges)
	partitions, from, to := make([]int32, n), make([]int64, n), make([]int64, n)
	for i, p := range r.Ranges {
		partitions[i], from[i], to[i] = p.Partition, p.From, p.To
	}
	const sql = `select firstseen.begin_replay($1, $2, $3, $4, $5, $6, $7, $8)`
	err = in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(sql), r.Consumer, r.Topic, db.OrNull(r.TopicID), r.Asked, partitions, from,
			to, fresh).Scan(&begun)
	})
	if err != nil {
		return false, fmt.Errorf("begin replay %s of topic %s: %w", r.Consumer, r.Topic, err)
	}
	return begun, nil
}

const replaySQL = `
select r."partition", r.from_offset, r.to_offset, coalesce(p.next_offset, r.from_offset), r.asked, r.begun_at, p.topic_id
from firstseen.replays r
left join firstseen.positions p using (consumer, topic, "partition")
where r.consumer = $1 and r.topic = $2
order by r."partition"`

// Replay gives the replay of a consumer in a topic, or nil where there is none.
func (in *Inbox) Replay(ctx context.Context, consumer, topic string) (*Replay, error) {
	found := &Replay{Consumer: consumer, Topic: topic}
	ranges, err := db.Collect(ctx, in.db, func(row pgx.CollectableRow) (r ReplayRange, err error) {
		var id *uuid.UUID
		err = row.Scan(&r.Partition, &r.From, &r.To, &r.Next, &found.Asked, &found.BegunAt, &id)
		found.TopicID = db.Deref(id)
		return r, err
	}, replaySQL, consumer, topic)
	if err != nil {
		return nil, fmt.Errorf("look for replay %s of topic %s: %w", consumer, topic, err)
	}
	if len(ranges) == 0 {
		return nil, nil
	}
	found.Ranges = ranges
	return found, nil
}
