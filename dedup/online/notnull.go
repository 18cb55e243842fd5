package online

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/wait"
)

const notNullSQL = `
select a.attnotnull, exists (select from pg_constraint c where c.conrelid = $1 and c.conname = $3::text::name)
from pg_attribute a
where a.attrelid = $1 and a.attname = $2 and not a.attisdropped`

// checkViolation is the SQLSTATE of a row that a check refuses.
const checkViolation = "23514"

// SetNotNull has a column not null from now on. It comes after Backfill, when no program runs any more that inserts
// rows without the column: those would fail. Rows that have no value yet are given theirs. The table is read, but not
// under a lock that keeps anybody from it: a check that is not validated at first stands in until it is.
func (t *Table) SetNotNull(ctx context.Context, b Backfill) error {
	err := t.alone(ctx, func() error { return t.setNotNull(ctx, b) })
	return t.failed(ctx, "set not null", b.Column, err)
}

func (t *Table) setNotNull(ctx context.Context, b Backfill) error {
	column, check := quote(b.Column), b.Column+"_backfilled"
	var isNotNull, isChecked bool
	err := t.conn.QueryRow(ctx, notNullSQL, t.oid, b.Column, check).Scan(&isNotNull, &isChecked)
	if errors.Is(err, pgx.ErrNoRows) {
		return errors.New("it is not there")
	}
	if err != nil {
		return err
	}
	check = quote(check)
	switch {
	case isNotNull && !isChecked:
		return nil
	case !isNotNull:
		err = t.addCheck(ctx, b, check, isChecked)
	}
	if err != nil {
		return err
	}
	// Postgres takes the check's word for it, and reads nothing.
	return t.briefly(ctx, fmt.Sprintf(`alter table %[1]s alter column %[2]s set not null;
		alter table %[1]s drop constraint if exists %[3]s`, t.name, column, check))
}

// addCheck has a check stand in for not null, and all rows pass it.
func (t *Table) addCheck(ctx context.Context, b Backfill, check string, isThere bool) error {
	if !isThere {
		if err := t.backfill(ctx, b); err != nil {
			return err
		}
		if err := t.briefly(ctx, fmt.Sprintf(`alter table %s add constraint %s check (%s is not null) not valid`,
			t.name, check, quote(b.Column))); err != nil {
			return err
		}
	}
	return t.validate(ctx, b, check)
}

// validate validates the check, as soon as rows are not locked any more that have no value yet.
func (t *Table) validate(ctx context.Context, b Backfill, check string) error {
	for until := time.Now().Add(t.cfg.Wait); ; {
		if err := t.backfill(ctx, b); err != nil {
			return err
		}
		err := t.patiently(ctx, func() error {
			return t.exec(ctx, fmt.Sprintf(`alter table %s validate constraint %s`, t.name, check))
		})
		if failure.Code(err) != checkViolation || time.Now().After(until) || !wait.Sleep(ctx, lockPoll) {
			return err
		}
	}
}
