package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/identity"
)

// JobPreview counts what a job would be of.
type JobPreview struct {
	// Messages would be redriven or discarded. WithoutID would stay, where it is a redrive: see NoIDError.
	Messages, WithoutID int
	// More says that these are not all: of many letters up to PreviewCap are counted, among the newest PreviewLooks.
	More bool
	// Moment fixes the set: a job that is given it is of these letters, and of no other.
	Moment Moment
}

// How much a preview counts, and how many letters it looks at for that, where no IDs are given.
const (
	PreviewCap   = 10_000
	PreviewLooks = 100_000
)

// PreviewJob counts what a job would be of, in bounded time, and fixes the moment. Whoever may read may ask. Moment
// is that of an earlier preview, or empty: now. ctx's deadline bounds it.
func (in *Inbox) PreviewJob(ctx context.Context, kind JobKind, f Filter, moment Moment) (p JobPreview, err error) {
	if f, err = in.fewDead(ctx, f); err != nil {
		return p, fmt.Errorf("count dead letters of inbox %s: %w", in.db.Inbox, err)
	}
	sql, args, err := previewStatement(in.db.Inbox, kind, f, moment)
	if err != nil {
		return p, err
	}
	var now string
	err = in.db.Look(ctx, []string{"enable_seqscan", "enable_bitmapscan", "enable_sort"}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(sql), args...).Scan(&p.Messages, &p.WithoutID, &p.More, &now)
	})
	if err != nil {
		return p, fmt.Errorf("count dead letters of inbox %s: %w", in.db.Inbox, moment.explain(err))
	}
	p.Moment = cmp.Or(moment, Moment(now))
	p.More = p.More || p.Messages+p.WithoutID >= PreviewCap
	return p, nil
}

func previewStatement(inbox string, kind JobKind, f Filter, moment Moment) (sql string, args []any, err error) {
	c := f.conditions(inbox, "m.died_at")
	if moment != "" {
		_, snapshot, err := moment.read()
		if err != nil {
			return "", nil, err
		}
		c.add(`(m.buried_by is null or pg_visible_in_snapshot(m.buried_by, $%d::text::pg_snapshot)
			or m.buried_by >= pg_snapshot_xmax(pg_current_snapshot()))`, snapshot)
	}
	reasons := []string{}
	if kind == JobRedrive {
		reasons = identity.Reasons()
	}
	where := c.where()
	from, more := "firstseen.dead_letters m", "false"
	c.args = append(c.args, reasons, PreviewCap)
	stays, limit := len(c.args)-1, len(c.args)
	if f.IDs == nil { // an index leads to each of these
		c.args = append(c.args, PreviewLooks)
		from, more = fmt.Sprintf(newestDead, len(c.args)), fmt.Sprintf(moreDead, len(c.args))
	}
	sql = fmt.Sprintf(`select count(*) filter (where not c.stays), count(*) filter (where c.stays), %s,
		(extract(epoch from clock_timestamp()) * 1000000)::bigint::text || '.' || pg_current_snapshot()::text
	from (select m.reason = any ($%d::text[]) as stays from %s join firstseen.scopes s using (scope_id)%s
		limit $%d) c`, more, stays, from, where, limit)
	return sql, c.args, nil
}

// explain says of an error whether the moment is to blame.
func (m Moment) explain(err error) error {
	if m != "" && failure.IsOfValues(err) {
		return errors.Join(&MomentError{m}, err)
	}
	return err
}
