package dedup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// Position is a consumer's place in one partition, as held by its present owner: the offset to process next and
// the epoch that fences every earlier owner. One goroutine owns it.
type Position struct {
	Consumer  string
	Topic     string
	Partition int32
	// TopicID is the topic's identity when the position was set; zero where the broker has none.
	TopicID uuid.UUID
	// Next is the offset of the next message to process; valid where Known is true.
	Next  int64
	Known bool
	// LeaderEpoch is the epoch of the partition's leader under which the last message before Next was written, as it
	// was when the position was acquired or set. Nil: not known.
	LeaderEpoch *int32
	// Epoch rises by one with each owner.
	Epoch int64
	// Evicted counts the open transactions of a previous owner that Acquire had to end.
	Evicted int

	// Fruitless counts the acquisitions of the position since it last moved, this one included, and not again by who
	// had it.
	Fruitless int

	id     int32
	server time.Time // when the server was started that gave the number
	// sinceDuplicate counts batches without a duplicate, and allSeen says that the last had nothing else: for the
	// choice of accept's way to insert.
	sinceDuplicate int
	allSeen        bool
	unmoved        bool // counted as acquired in vain: no batch was committed since
}

const (
	acquireSQL = `select position_id, epoch, next_offset, topic_id, evicted, fruitless, pg_postmaster_start_time()
		from firstseen.acquire($1, $2, $3, $4, $5)`
	confirmSQL = `select pg_postmaster_start_time() from firstseen.positions
		where position_id = $1 and epoch = $2 and consumer = $3 and topic = $4 and "partition" = $5`
	leaderEpochSQL = `select leader_epoch from firstseen.positions where position_id = $1 and leader_epoch_at = next_offset`
)

// Acquire makes the caller the owner of a position and fences all earlier owners. An earlier owner's open
// transaction is waited for, and after Config.EvictAfter ended: it can only belong to a process that is stopped,
// hung or cut off. ErrLocked says that something else holds the position for 10 seconds more. owner is ThisProcess:
// one that acquires again is known to live.
func (s *Store) Acquire(ctx context.Context, consumer, topic string, partition int32,
	owner string) (*Position, error) {
	// One batch by the careful way tells whether what comes was seen before.
	p := &Position{Consumer: consumer, Topic: topic, Partition: partition, unmoved: true,
		sinceDuplicate: optimisticAfter - 1}
	var next *int64
	var topicID *uuid.UUID
	grace := fmt.Sprintf("%d ms", s.cfg.EvictAfter/time.Millisecond)
	err := s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, s.db.SQL(acquireSQL), consumer, topic, partition, owner, grace).
			Scan(&p.id, &p.Epoch, &next, &topicID, &p.Evicted, &p.Fruitless, &p.server)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, s.db.SQL(leaderEpochSQL), p.id).Scan(&p.LeaderEpoch)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("acquire position %s/%d of %s: %w", topic, partition, consumer, positionError(err))
	}
	if next != nil {
		p.Next, p.Known = *next, true
	}
	p.TopicID = db.Deref(topicID)
	return p, nil
}

// ThisProcess names this process, and no other, as an owner of positions: that of before in a container had the same
// host and number.
var ThisProcess = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d (%s)", host, os.Getpid(), uuid.NewString()[:8])
})

// holderSQL names the session whose transaction has locked or moved a position: the row bears the mark of that
// transaction, and every transaction holds a lock on its own number. Where the session logged in as this one did,
// and the position has no later owner, it is ended.
const holderSQL = `
select format('session %s of %s (application "%s"%s)', a.pid, a.usename, a.application_name,
	', since ' || to_char(a.xact_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC')),
	case when a.usename = session_user and p.epoch = $2 and a.xact_start < clock_timestamp() - $3 * interval '1 ms'
		then pg_terminate_backend(a.pid) else false end
from firstseen.positions p
join pg_locks l on l.locktype = 'transactionid' and l.transactionid = p.xmax and l.mode = 'ExclusiveLock' and l.granted
join pg_stat_activity a on a.pid = l.pid
where p.position_id = $1 and a.pid <> pg_backend_pid()
limit 1`

// lockedBy finds out whether Postgres did not answer because another session holds the position. That may be a
// transaction of our own, on a connection that fell silent: the server does not know that nobody is there any more.
func (s *Store) lockedBy(ctx context.Context, p *Position, err error) error {
	if !errors.Is(err, ErrNoAnswer) {
		return err
	}
	var session string
	var ended bool
	asked := db.Answered(ctx, checkLimit, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, s.db.SQL(holderSQL), p.id, p.Epoch,
			s.cfg.EvictAfter.Milliseconds()).Scan(&session, &ended)
	})
	switch {
	case asked != nil:
		return err
	case ended:
		return fmt.Errorf("a transaction of an earlier connection still held the position and was ended, %s: %w",
			session, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrLocked, session, err)
}

// confirm finds out whether a position is still its owner's where the server is another one, or was set back: what the
// number stands for may have been lost, and given to another position. Then it is fenced.
func (s *Store) confirm(ctx context.Context, p *Position, err error) error {
	if !errors.Is(err, ErrOtherServer) && !errors.As(err, new(*MovedError)) {
		return err
	}
	asked := s.Answered(ctx, 0, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, s.db.SQL(confirmSQL), p.id, p.Epoch, p.Consumer, p.Topic, p.Partition).
			Scan(&p.server)
	})
	switch {
	case errors.Is(asked, pgx.ErrNoRows):
		return ErrFenced
	case asked != nil:
		return asked
	}
	return err
}

const (
	repositionSQL     = `select firstseen.reposition($1, $2, $3, $4)`
	setLeaderEpochSQL = `update firstseen.positions p set leader_epoch = e.leader_epoch, leader_epoch_at = p.next_offset
		from unnest($3::int[], $4::int[]) e ("partition", leader_epoch)
		where p.consumer = $1 and p.topic = $2 and p."partition" = e."partition"`
)

// Reposition sets where the owner starts, forward or back, under which topic identity (zero: none), and the leader
// epoch of the last message before (nil: not known).
func (s *Store) Reposition(ctx context.Context, p *Position, next int64, topicID uuid.UUID, leaderEpoch *int32) error {
	var id *uuid.UUID
	if topicID != uuid.Nil {
		id = &topicID
	}
	err := s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.SQL(repositionSQL), p.id, p.Epoch, next, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.db.SQL(setLeaderEpochSQL), p.Consumer, p.Topic, []int32{p.Partition},
			[]*int32{leaderEpoch})
		return err
	})
	if err != nil {
		return fmt.Errorf("set position %s/%d of %s to %d: %w", p.Topic, p.Partition, p.Consumer, next,
			positionError(err))
	}
	p.Next, p.Known, p.TopicID, p.LeaderEpoch = next, true, topicID, leaderEpoch
	return nil
}

const excuseSQL = `update firstseen.positions set fruitless = greatest(fruitless - 1, 0), owner = null
	where position_id = $1 and epoch = $2`

// Excuse takes back that this owner has acquired the position without moving it, and nothing of what owners before
// it left: it came to its end before it handled anything. Where it has moved the position, or was excused before,
// there is nothing to take back.
func (s *Store) Excuse(ctx context.Context, p *Position) error {
	if !p.unmoved {
		return nil
	}
	err := s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.SQL(excuseSQL), p.id, p.Epoch)
		return err
	})
	p.unmoved = err != nil
	return err
}

const recallSQL = `update firstseen.positions set fruitless = $3 where position_id = $1 and epoch = $2`

// Recall notes again that the position was acquired Fruitless times without moving: so far it has only come to where
// it stood when it was acquired.
func (s *Store) Recall(ctx context.Context, p *Position) error {
	p.unmoved = true
	return s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.db.SQL(recallSQL), p.id, p.Epoch, p.Fruitless)
		return err
	})
}

const unfinishedSQL = `
select count(*)
from (select from firstseen.lanes l join firstseen.scopes c using (scope_id)
	join firstseen.parked p using (scope_id, lane)
	where l.topic = $1 and l."partition" = $2 and c.inbox = $4 limit $3) u`

// Unfinished counts the inbox's parked messages of a partition, up to limit.
func (s *Store) Unfinished(ctx context.Context, topic string, partition int32, limit int) (n int, err error) {
	err = s.Answered(ctx, 0, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, s.db.SQL(unfinishedSQL), topic, partition, limit, s.cfg.Inbox).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("count parked messages of %s/%d: %w", topic, partition, err)
	}
	return n, nil
}

const knownTopicSQL = `select exists (select from firstseen.positions where consumer = $1 and topic = $2 and next_offset is not null)`

// KnowsTopic says whether the consumer has a position in any partition of the topic.
func (s *Store) KnowsTopic(ctx context.Context, consumer, topic string) (bool, error) {
	var known bool
	err := s.Answered(ctx, 0, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, s.db.SQL(knownTopicSQL), consumer, topic).Scan(&known)
	})
	if err != nil {
		return false, fmt.Errorf("look for positions of %s in topic %s: %w", consumer, topic, err)
	}
	return known, nil
}

const beginTopicSQL = `select firstseen.begin_topic($1, $2, $3, $4, $5)`

// Begin sets the positions of all partitions of a topic that is new to the consumer, in one transaction: next has
// the first offset of each. Where the consumer knows the topic it does nothing and returns false. So whoever finds a
// partition without a position later knows that the partition was added, or its position lost. leaderEpochs has the
// leader epoch of the last message before, for those of which it is known.
func (s *Store) Begin(ctx context.Context, consumer, topic string, topicID uuid.UUID, next map[int32]int64,
	leaderEpochs map[int32]int32) (begun bool, err error) {
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
		return false, fmt.Errorf("begin topic %s for %s: %w", topic, consumer, homeError(err))
	}
	return begun, nil
}

// ForgetPartitions deletes the positions of partitions that a topic does not have any more because it was made anew
// with fewer: those from partitions on that were set in another topic than topicID. It returns how many there were.
func (s *Store) ForgetPartitions(ctx context.Context, consumer, topic string, topicID uuid.UUID,
	partitions int) (gone int, err error) {
	const sql = `select firstseen.forget_partitions($1, $2, $3, $4)`
	err = s.Answered(ctx, 0, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, s.db.SQL(sql), consumer, topic, topicID, partitions).Scan(&gone)
	})
	if err != nil {
		return 0, fmt.Errorf("forget positions of %s in topic %s: %w", consumer, topic, db.RightsError(err))
	}
	return gone, nil
}
