package operate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/wait"
)

// chunkAim is the time that a transaction that deletes IDs should take, and chunkLimit ends it: a copy of an ID that
// it is just deleting waits for it.
const (
	chunkAim   = 20 * time.Millisecond
	chunkLimit = "45ms"
)

// ErrElsewhere says that another process is doing the same work.
var ErrElsewhere = errors.New("another process is at it just now")

// ForgetIDs deletes the IDs of the inbox that a handler first saw before its time in before, and returns how many.
// A copy that comes after that takes effect again: whoever calls it makes sure that none can come. The IDs of parked
// messages and dead letters are kept. Handlers that are not in before keep all.
//
// It reads the table message_dedup once, in transactions of about 20 ms with as long a pause after each; accept
// waits for none but where a copy of an ID arrives that is just being deleted. What is younger than the table
// upkeep_limits allows is refused by Postgres. The role firstseen_retention is needed. On error what was deleted is
// in the count.
func (in *Inbox) ForgetIDs(ctx context.Context, before map[string]time.Time, by By) (forgotten int64, err error) {
	if err := by.validate(); err != nil {
		return 0, fmt.Errorf("forget IDs of inbox %s: %w", in.db.Inbox, err)
	}
	f := forgetting{by: by, pages: 16}
	for handler, at := range before {
		f.handlers, f.before = append(f.handlers, handler), append(f.before, at)
	}
	for err == nil && len(before) > 0 && !f.done {
		var n int64
		n, err = in.forgetChunk(ctx, &f)
		forgotten += n
	}
	if err != nil {
		return forgotten, fmt.Errorf("forget IDs of inbox %s: %w", in.db.Inbox, err)
	}
	return forgotten, nil
}

// forgetting is ForgetIDs under way.
type forgetting struct {
	handlers []string
	before   []time.Time
	by       By
	from     int64
	pages    int
	done     bool
}

const forgetSQL = `select forgotten, next_page from firstseen.forget_ids($1, $2::text[], $3::timestamptz[], $4, $5, $6, $7)`

// forgetChunk takes the next pages, and pauses as long as that took.
func (in *Inbox) forgetChunk(ctx context.Context, f *forgetting) (n int64, err error) {
	limit := chunkLimit
	if f.pages == 1 { // it can't be done in less
		limit = "2s"
	}
	var next *int64
	began := time.Now()
	err = in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := limitTx(ctx, tx, chunkLimit, limit); err != nil {
			return err
		}
		return tx.QueryRow(ctx, in.db.SQL(forgetSQL), in.db.Inbox, f.handlers, f.before, f.from, f.pages, f.by.Actor,
			f.by.Why).Scan(&n, &next)
	})
	took := time.Since(began)
	switch {
	case ranOutOfTime(err) && f.pages > 1:
		f.pages, n = max(1, f.pages/4), 0
	case err != nil:
		return 0, err
	case next == nil:
		f.done = true
		return n, nil
	default:
		if f.from != *next { // else a rerun kept it away
			f.adapt(took)
		}
		f.from = *next
	}
	wait.Sleep(ctx, max(took, time.Millisecond))
	return n, ctx.Err()
}

// adapt has the next chunk take as long as it should, by how long the last one took.
func (f *forgetting) adapt(took time.Duration) {
	const most = 4096
	factor := float64(chunkAim) / float64(max(took, time.Millisecond))
	factor = min(2, max(0.25, factor))
	f.pages = min(most, max(1, int(math.Round(float64(f.pages)*factor))))
}

// ranOutOfTime says that Postgres ended a statement for the time that it took, or waited for a lock.
func ranOutOfTime(err error) bool {
	sign := failure.Of(err)
	return sign == failure.TooSlow || sign == failure.Locked
}

// EstimateForget estimates how many IDs ForgetIDs would delete of each handler, from a sample of about a thousand
// pages of the table: tens of thousands are right to a few percent, a handful may not be seen.
func (in *Inbox) EstimateForget(ctx context.Context, before map[string]time.Time) (map[string]int64, error) {
	var handlers []string
	var times []time.Time
	for handler, at := range before {
		handlers, times = append(handlers, handler), append(times, at)
	}
	found := map[string]int64{}
	err := in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := limitTx(ctx, tx, "1s", sizeLimit); err != nil {
			return err
		}
		var pages int64
		if err := tx.QueryRow(ctx,
			in.db.SQL(`select pg_relation_size('firstseen.message_dedup') / current_setting('block_size')::int`)).
			Scan(&pages); err != nil {
			return err
		}
		percent := min(100, 1000*100/float64(max(1, pages)))
		sql := strings.Replace(estimateSQL, "PERCENT", fmt.Sprintf("%.6f", percent), 1)
		rows, err := tx.Query(ctx, in.db.SQL(sql), in.db.Inbox, handlers, times)
		if err != nil {
			return err
		}
		var handler string
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&handler, &n}, func() error {
			found[handler] = int64(float64(n) * 100 / percent)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("estimate the old IDs of inbox %s: %w", in.db.Inbox, err)
	}
	return found, nil
}

const estimateSQL = `
select w.handler, count(*)
from firstseen.message_dedup d tablesample system (PERCENT)
join firstseen.scopes s using (scope_id)
join unnest($2::text[], $3::timestamptz[]) w (handler, before) on w.handler = s.handler and d.first_seen_at < w.before
where s.inbox = $1
group by w.handler`

// Handlers lists the handlers that have seen a message in the inbox.
func (in *Inbox) Handlers(ctx context.Context) ([]string, error) {
	names, err := db.Collect(ctx, in.db, pgx.RowTo[string],
		`select distinct handler from firstseen.scopes where inbox = $1 order by handler`, in.db.Inbox)
	if err != nil {
		return nil, fmt.Errorf("list handlers of inbox %s: %w", in.db.Inbox, err)
	}
	return names, nil
}

// Forgotten gives, for each handler of the inbox, the time of the last ForgetIDs that came to its end.
func (in *Inbox) Forgotten(ctx context.Context) (map[string]time.Time, error) {
	upkeep, err := in.upkeep(ctx, in.db.Inbox)
	if err != nil {
		return nil, fmt.Errorf("read what inbox %s has forgotten: %w", in.db.Inbox, err)
	}
	before := map[string]time.Time{}
	for _, u := range upkeep {
		if u.swept != nil {
			before[u.handler] = *u.swept
		}
	}
	return before, nil
}

// upkept counts what retention has deleted of a handler.
type upkept struct {
	handler string
	before  time.Time
	swept   *time.Time
	removed int64
}

// upkeep reads what retention has deleted in an inbox; that without a name is the days of all of them.
func (in *Inbox) upkeep(ctx context.Context, inbox string) ([]upkept, error) {
	return db.Collect(ctx, in.db, func(row pgx.CollectableRow) (u upkept, err error) {
		return u, row.Scan(&u.handler, &u.before, &u.swept, &u.removed)
	}, `select handler, before, swept, removed from firstseen.upkeep where inbox = $1 order by handler`, inbox)
}

// Exclusively runs do where nobody else is running one on the schema, and says ErrElsewhere where somebody is. It
// holds one connection of the pool, in an empty transaction.
func (in *Inbox) Exclusively(ctx context.Context, do func(context.Context) error) error {
	var tx pgx.Tx
	var mine bool
	err := db.Answered(ctx, in.db.Answer, func(ctx context.Context) (err error) {
		if tx, err = in.db.Pool.BeginTx(ctx, db.Pinned); err != nil {
			return err
		}
		return tx.QueryRow(ctx,
			in.db.SQL(`select set_config('idle_in_transaction_session_timeout', '0', true) is not null
			and firstseen.claim_upkeep()`)).Scan(&mine)
	})
	if tx != nil {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), db.RollbackTimeout)
			defer cancel()
			_ = tx.Rollback(ctx)
		}()
	}
	switch {
	case err != nil:
		return err
	case !mine:
		return ErrElsewhere
	}
	return do(ctx)
}

// InboxDay is one day (UTC) of the inbox.
type InboxDay struct {
	Day   time.Time
	Bytes int64
}

// InboxDaysBefore lists the days of the inbox that ended by then, all inboxes of the schema together.
func (in *Inbox) InboxDaysBefore(ctx context.Context, before time.Time) (days []InboxDay, err error) {
	err = in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		relations, err := in.readRelations(ctx, tx)
		for _, r := range relations {
			if !r.day.IsZero() && !r.day.Add(day).After(before) {
				days = append(days, InboxDay{Day: r.day, Bytes: r.bytes})
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the inbox's days: %w", err)
	}
	slices.SortFunc(days, func(a, b InboxDay) int { return a.Day.Compare(b.Day) })
	return days, nil
}

// Dropped tells what DropInbox did.
type Dropped struct {
	Days  int
	Bytes int64
	// Rows were in no day's table.
	Rows int64
	// Busy days were in use; the next call may find them free.
	Busy int
}

// DropInbox drops the days of the table inbox that ended before a time: processed messages, of all inboxes of the
// schema. Unfinished messages and dead letters lie elsewhere, and IDs stay known. A lock is waited for 40 ms at
// most, and tried for again some times, so that accept is never held up for longer. The role firstseen_retention is
// needed.
func (in *Inbox) DropInbox(ctx context.Context, before time.Time, by By) (d Dropped, err error) {
	if err = by.validate(); err != nil {
		return d, fmt.Errorf("drop days of the inbox: %w", err)
	}
	days, err := in.InboxDaysBefore(ctx, before)
	for i := 0; err == nil && i < len(days); i++ {
		var gone bool
		if gone, err = in.dropDay(ctx, days[i].Day, by); !gone {
			d.Busy++
			continue
		}
		d.Days++
		d.Bytes += days[i].Bytes
	}
	for n := int32(trimChunk); err == nil && n == trimChunk; d.Rows += int64(n) {
		if n, err = in.trim(ctx, before, by); err == nil && !wait.Sleep(ctx, 5*time.Millisecond) {
			err = ctx.Err()
		}
	}
	if err != nil {
		return d, fmt.Errorf("drop days of the inbox: %w", err)
	}
	return d, nil
}

// dropDay empties a day, and then drops its table.
func (in *Inbox) dropDay(ctx context.Context, day time.Time, by By) (gone bool, err error) {
	const tries = 10
	for try := 0; try < tries && !gone; {
		var state string
		err = in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, in.db.SQL(`select firstseen.drop_inbox_day($1, $2::text::date, $3, $4)`),
				in.db.Inbox, day.Format(time.DateOnly), by.Actor, by.Why).Scan(&state)
		})
		if err != nil {
			return false, err
		}
		gone = state == "dropped" || state == "gone"
		if state == "busy" {
			try++
			if !wait.Sleep(ctx, time.Duration(try)*100*time.Millisecond) {
				return false, ctx.Err()
			}
		}
	}
	return gone, nil
}

const trimChunk = 500

func (in *Inbox) trim(ctx context.Context, before time.Time, by By) (n int32, err error) {
	err = in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(`select firstseen.trim_inbox($1, $2, $3, $4, $5)`),
			in.db.Inbox, before, trimChunk, by.Actor, by.Why).Scan(&n)
	})
	if ranOutOfTime(err) {
		return 0, nil // in use: the next call
	}
	return n, err
}
