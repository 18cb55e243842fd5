package online

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/firstseen/firstseen/dedup/wait"
)

// Backfill says what rows get that were there before their column.
type Backfill struct {
	// Column is given a value where it has none.
	Column string
	// Value is SQL for the value of a row, never null, of the row's own columns: "'order-' || id".
	Value string
	// Pages is one transaction's part of the table, in pages of 8 KiB. Its rows are locked for that long. Default 64.
	Pages int
	// OnProgress hears of each transaction. Default nobody.
	OnProgress func(Progress)
}

// Progress tells how far one pass over the table has come.
type Progress struct {
	// Pages of Total are done; Total is the size of the table when the pass began.
	Pages, Total int64
	// Rows have been given a value.
	Rows int64
}

// Backfill goes over the table once, in small transactions, with pauses in which others have the disk to themselves.
// It waits for no row: one that is locked at that moment it leaves as it is, and also one that is written meanwhile by
// who does not know the column. Broken off it has kept what it did, and the next pass is quick where rows have their
// values. Several at once share the work. Rows of tables that inherit from this one are left alone.
func (t *Table) Backfill(ctx context.Context, b Backfill) error {
	return t.failed(ctx, "backfill", b.Column, t.backfill(ctx, b))
}

const pagesSQL = `select pg_relation_size($1::oid) / current_setting('block_size')::int`

// The rows of a chunk are found by where they lie, and no index is needed for that.
const backfillSQL = `
with filled as (
	update only %[1]s set %[2]s = %[3]s
	where ctid = any (array(
		select ctid from only %[1]s where ctid >= $1 and ctid < $2 and %[2]s is null
		for no key update skip locked))
	returning %[2]s is null as failed)
select count(*), count(*) filter (where failed) from filled`

func (t *Table) backfill(ctx context.Context, b Backfill) error {
	var p Progress
	if err := t.conn.QueryRow(ctx, pagesSQL, t.oid).Scan(&p.Total); err != nil {
		return err
	}
	if b.Pages <= 0 {
		b.Pages = 64
	}
	sql := fmt.Sprintf(backfillSQL, t.name, quote(b.Column), "("+b.Value+")")
	for p.Pages < p.Total {
		began, end := time.Now(), min(p.Pages+int64(b.Pages), p.Total)
		rows, err := t.fill(ctx, sql, p.Pages, end)
		if err != nil {
			return err
		}
		p.Pages, p.Rows = end, p.Rows+rows
		if b.OnProgress != nil {
			b.OnProgress(p)
		}
		if rows > 0 && !wait.Sleep(ctx, time.Since(began)) {
			return ctx.Err()
		}
	}
	return nil
}

// fill goes over the pages from one to another.
func (t *Table) fill(ctx context.Context, sql string, from, to int64) (rows int64, err error) {
	var failed int64
	err = t.inTurn(ctx, func() error {
		return t.conn.QueryRow(ctx, sql, firstRow(from), firstRow(to)).Scan(&rows, &failed)
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("the value of %d rows is null", failed)
	}
	return rows, err
}

func firstRow(page int64) pgtype.TID { return pgtype.TID{BlockNumber: uint32(page), Valid: true} }
