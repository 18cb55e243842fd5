package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/internal/db"
)

// changeChunk caps the dead letters that one transaction changes: while it is open, batches of their partition wait.
const changeChunk = 500

// wakeWait bounds the wait for the commit of a lane's worker, in milliseconds.
const wakeWait = 1000

// Redrive gives the dead letters that the filter picks back to their handlers, and returns how many. Each is parked
// again as it came, with no attempts, and handled by whatever process runs its handler's lanes; later messages of its
// key wait for it. Messages of one key are handled in the order of their offsets.
//
// Who redrives the same message at the same time finds it gone: it is handled once. What dies again meanwhile is not
// redriven again. Large numbers go in many transactions, each of one partition, and with its audit rows; on error
// those before it have taken effect, and their messages are in the count. A batch that is open on a partition is
// waited for.
//
// Letters that have no message ID stay, and the error is then a *NoIDError, after the others are redriven.
func (in *Inbox) Redrive(ctx context.Context, f Filter, by By) (int, error) {
	n, err := in.change(ctx, f, by, in.redrive)
	if err == nil {
		_, err = in.CountRedrive(ctx, f)
	}
	if err != nil {
		return n, fmt.Errorf("redrive dead letters of inbox %s: %w", in.db.Inbox, err)
	}
	return n, nil
}

// CountRedrive counts what a Redrive with the same filter would give back. The error is a *NoIDError where others
// would stay.
func (in *Inbox) CountRedrive(ctx context.Context, f Filter) (n int, err error) {
	c := f.conditions(in.db.Inbox, "m.died_at")
	c.args = append(c.args, identity.Reasons())
	sql := fmt.Sprintf(`select count(*) filter (where m.reason <> all ($%[1]d)), count(*) filter (where m.reason = any ($%[1]d))
		from firstseen.dead_letters m join firstseen.scopes s using (scope_id)`, len(c.args))
	var stay int
	if err := in.db.Pool.QueryRow(ctx, in.db.SQL(sql+c.where()), c.args...).Scan(&n, &stay); err != nil {
		return 0, fmt.Errorf("count dead letters of inbox %s: %w", in.db.Inbox, err)
	}
	if stay > 0 {
		err = &NoIDError{stay}
	}
	return n, err
}

// CountDeadLetters counts what a Redrive or Discard with the same filter would find.
func (in *Inbox) CountDeadLetters(ctx context.Context, f Filter) (n int, err error) {
	c := f.conditions(in.db.Inbox, "m.died_at")
	sql := `select count(*) from firstseen.dead_letters m join firstseen.scopes s using (scope_id)` + c.where()
	if err := in.db.Pool.QueryRow(ctx, in.db.SQL(sql), c.args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count dead letters of inbox %s: %w", in.db.Inbox, err)
	}
	return n, nil
}

// NoIDError says that dead letters can't be redriven because no message ID was found for them: they lie under the ID
// of their place. Redriven they would take effect under that one, and once more when their producer sends them
// again.
type NoIDError struct{ Letters int }

func (e *NoIDError) Error() string {
	return counted(int64(e.Letters), "dead letter") + " without a message ID can't be redriven, " +
		"for a copy would take effect beside it: correct where the topic's id is looked for, restart, " +
		"have the offsets read again by a replay, which gives the message its ID, and discard the letter"
}

// Discard forgets the dead letters that the filter picks, content and all, and returns how many. Their IDs stay seen:
// a copy that comes later is a duplicate. It works in transactions like Redrive's.
func (in *Inbox) Discard(ctx context.Context, f Filter, by By) (int, error) {
	n, err := in.change(ctx, f, by, in.discard)
	if err != nil {
		return n, fmt.Errorf("discard dead letters of inbox %s: %w", in.db.Inbox, err)
	}
	return n, nil
}

type grave struct {
	scope     int32
	id        uuid.UUID
	topic     string
	partition int32
}

const gravesSQL = `
select m.scope_id, m.message_id, m.topic, coalesce(m."partition", -1)
from firstseen.dead_letters m
join firstseen.scopes s using (scope_id)`

// change takes the dead letters that are there now, in the order of their offsets, through one transaction after the
// other.
func (in *Inbox) change(ctx context.Context, f Filter, by By,
	one func(context.Context, []int32, []string, By) (int, error)) (total int, err error) {
	if err := by.validate(); err != nil {
		return 0, err
	}
	c := f.conditions(in.db.Inbox, "m.died_at")
	graves, err := db.Collect(ctx, in.db, scanGrave,
		gravesSQL+c.where()+` order by m.topic, m."partition", m."offset", m.scope_id, m.message_id`, c.args...)
	if err != nil {
		return 0, err
	}
	return byPartition(graves, func(some []grave) (int, error) {
		var scopes []int32
		var ids []string
		for _, g := range some {
			scopes, ids = append(scopes, g.scope), append(ids, g.id.String())
		}
		return one(ctx, scopes, ids, by)
	})
}

func scanGrave(row pgx.CollectableRow) (g grave, err error) {
	return g, row.Scan(&g.scope, &g.id, &g.topic, &g.partition)
}

func (g grave) at() (topic string, partition int32) { return g.topic, g.partition }

// byPartition does something with all rows, which are sorted by partition, in one transaction after the other: each
// has rows of one partition, up to changeChunk. It adds up what they return.
func byPartition[T interface{ at() (string, int32) }](rows []T, do func([]T) (int, error)) (total int, err error) {
	for err == nil && len(rows) > 0 {
		topic, partition := rows[0].at()
		n := slices.IndexFunc(rows[:min(changeChunk, len(rows))], func(row T) bool {
			t, p := row.at()
			return t != topic || p != partition
		})
		if n < 0 {
			n = min(changeChunk, len(rows))
		}
		var done int
		done, err = do(rows[:n])
		total += done
		rows = rows[n:]
	}
	return total, err
}

const redriveSQL = `select redriven, busy_scopes, busy_lanes::text[]
	from firstseen.redrive($1::int[], $2::text[]::uuid[], $3, $4)`

func (in *Inbox) redrive(ctx context.Context, scopes []int32, ids []string, by By) (n int, err error) {
	return in.giveBack(ctx, redriveSQL, scopes, ids, by.Actor, by.Why)
}

// giveBack parks messages again in one transaction, and needs one more where lanes were at work: see wake_lanes.
func (in *Inbox) giveBack(ctx context.Context, sql string, args ...any) (n int, err error) {
	var busyScopes []int32
	var busyLanes []string
	err = in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(sql), args...).Scan(&n, &busyScopes, &busyLanes)
	})
	if err != nil {
		return 0, err
	}
	return n, in.wake(ctx, busyScopes, busyLanes)
}

// wake makes lanes due that were at work when messages were added to them.
func (in *Inbox) wake(ctx context.Context, scopes []int32, lanes []string) error {
	if len(lanes) == 0 {
		return nil
	}
	return in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, in.db.SQL(`select firstseen.wake_lanes($1::int[], $2::text[]::uuid[], $3)`), scopes,
			lanes, wakeWait)
		return err
	})
}

const discardSQL = `select firstseen.discard($1::int[], $2::text[]::uuid[], $3, $4)`

func (in *Inbox) discard(ctx context.Context, scopes []int32, ids []string, by By) (n int, err error) {
	err = in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(discardSQL), scopes, ids, by.Actor, by.Why).Scan(&n)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
