package bench

import (
	"context"
	"fmt"
)

// replayed is one round of replay.
type replayed struct {
	fresh, again float64 // messages a second
	wal          float64 // bytes for each message, in the replay
	rows         float64 // that were written to message_dedup in the replay, in vain too
}

// replayTwice takes a topic through twice: for one group, to which all is new, and for a second group with the same
// inbox, to which all was seen before. Both rates are without the start.
func replayTwice(ctx context.Context, l *lab) error {
	var fresh, again, wal, rows series
	for range l.pick(5, 2) {
		r, err := l.replayOnce(ctx, l.pick(500_000, 50_000))
		if err != nil {
			return err
		}
		fresh, again = append(fresh, r.fresh), append(again, r.again)
		wal, rows = append(wal, r.wal), append(rows, r.rows)
	}
	walResult := wal.result("WAL in the replay", "B/msg")
	walResult.Note = "of the whole server: positions, commits, and what runs beside them"
	return l.report(
		fresh.result("all new", "msg/s"),
		again.against(fresh, "all seen before", "msg/s", "all new").atLeast(8),
		walResult,
		rows.most("rows written to message_dedup", "rows").atMost(0),
	)
}

// replayOnce has a database of its own, where nobody else writes.
func (l *lab) replayOnce(ctx context.Context, messages int) (r replayed, err error) {
	d, err := l.database(ctx)
	if err != nil {
		return r, err
	}
	defer l.drop(d)
	topic, err := l.topic(ctx, topicSpec{messages: messages})
	if err != nil {
		return r, err
	}
	j := job{Topic: topic, Group: "first", Inbox: "shared", Handler: "set", Messages: messages, Partitions: partitions}
	first, err := l.firstseen(ctx, d, j)
	if err != nil {
		return r, err
	}
	before, err := d.written(ctx)
	if err != nil {
		return r, err
	}
	if before.rows < messages {
		return r,
			fmt.Errorf("message_dedup has %d rows written and not %d: the measure is blind", before.rows, messages)
	}
	j.Group = "second"
	second, err := l.firstseen(ctx, d, j)
	if err != nil {
		return r, err
	}
	after, err := d.written(ctx)
	if err != nil {
		return r, err
	}
	return replayed{fresh: first.steady(), again: second.steady(),
		wal:  float64(after.wal-before.wal) / float64(messages),
		rows: float64(after.rows - before.rows),
	}, d.expectEffects(ctx, messages)
}

// written counts rows and WAL since the database was made.
type written struct {
	rows int   // of message_dedup: inserted, changed or deleted, whether or not the transaction committed
	wal  int64 // bytes, by the server
}

// written waits until no contender is connected: a backend reports its rows when it ends, if not before.
func (d *database) written(ctx context.Context) (w written, err error) {
	if err := d.awaitCount(ctx, 0, connections); err != nil {
		return w, err
	}
	const sql = `select n_tup_ins + n_tup_upd + n_tup_del, pg_current_wal_insert_lsn() - '0/0'
		from pg_stat_all_tables where relid = 'firstseen.message_dedup'::regclass`
	if err := d.pool.QueryRow(ctx, sql).Scan(&w.rows, &w.wal); err != nil {
		return w, fmt.Errorf("ask what was written: %w", err)
	}
	return w, nil
}
