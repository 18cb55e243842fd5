package online

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/wait"
)

// Index is one that a table is to have.
type Index struct {
	// Name is known to the table's schema once.
	Name string
	// Unique refuses a second row of the same values.
	Unique bool
	// Columns are those of the index, in SQL: "tenant, idempotency_key".
	Columns string
	// Where says which rows are in it, in SQL. Default all.
	Where string
}

// AddIndex builds an index while everybody writes. One of that name which was left INVALID by a build that failed is
// dropped and built again; one that is valid is taken for the index that is wanted, whatever its columns are. Where
// rows have the same values already, a unique index can't be built; the error is Postgres' 23505.
func (t *Table) AddIndex(ctx context.Context, x Index) error {
	err := t.alone(ctx, func() error { return t.addIndex(ctx, x) })
	return t.failed(ctx, "add index", x.Name, err)
}

func (t *Table) addIndex(ctx context.Context, x Index) error {
	is, err := t.state(ctx, x)
	if err != nil || is == valid {
		return err
	}
	return t.patiently(ctx, func() error {
		if is == invalid {
			is, err = t.stateAfterBuild(ctx, x)
		}
		if err == nil && is == invalid {
			is, err = absent, t.exec(ctx, `drop index concurrently `+x.in(t.schema))
		}
		if err == nil && is == absent {
			err = t.exec(ctx, x.create(t.name))
		}
		return err
	})
}

func (x Index) create(table string) string {
	kind, where := "index", ""
	if x.Unique {
		kind = "unique index"
	}
	if x.Where != "" {
		where = fmt.Sprintf(" where (%s)", x.Where)
	}
	return fmt.Sprintf(`create %s concurrently %s on %s (%s)%s`, kind, quote(x.Name), table, x.Columns, where)
}

type state int

const (
	absent state = iota
	invalid
	valid
)

const indexSQL = `
select i.indisvalid, i.indisunique, i.indrelid = $1
from pg_index i
join pg_class c on c.oid = i.indexrelid
where c.relname = $2 and c.relnamespace = (select relnamespace from pg_class where oid = $1)`

func (t *Table) state(ctx context.Context, x Index) (state, error) {
	var isValid, isUnique, isHere bool
	err := t.conn.QueryRow(ctx, indexSQL, t.oid, x.Name).Scan(&isValid, &isUnique, &isHere)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return absent, nil
	case err != nil:
		return absent, err
	case !isHere:
		return absent, errors.New("another table has an index of that name")
	case isUnique != x.Unique:
		return absent, fmt.Errorf("one of that name is there, and its being unique is %t", isUnique)
	case !isValid:
		return invalid, nil
	}
	return valid, nil
}

// changingSQL says that somebody's transaction, which is still open, has changed what is known of an index.
const changingSQL = `
select exists (
	select from pg_index i
	join pg_locks l on l.locktype = 'transactionid' and l.transactionid = i.xmax
	where i.indexrelid = to_regclass($1))`

// stateAfterBuild is the state when nobody builds an index on the table: one that is being built is not valid yet
// either. The lock waits for who does, and lets everybody write. It is given a moment before the index is valid: then
// Postgres is about to commit that.
func (t *Table) stateAfterBuild(ctx context.Context, x Index) (is state, err error) {
	err = pgx.BeginFunc(ctx, t.conn, func(pgx.Tx) error {
		if err := t.exec(ctx, fmt.Sprintf(`lock table %s in share update exclusive mode`, t.name)); err != nil {
			return err
		}
		if err := t.awaitChange(ctx, x); err != nil {
			return err
		}
		is, err = t.state(ctx, x)
		return err
	})
	return is, err
}

func (t *Table) awaitChange(ctx context.Context, x Index) error {
	for until := time.Now().Add(t.cfg.Wait); ; {
		var changing bool
		err := t.conn.QueryRow(ctx, changingSQL, x.in(t.schema)).Scan(&changing)
		if err != nil || !changing || time.Now().After(until) || !wait.Sleep(ctx, commitPoll) {
			return err
		}
	}
}

// commitPoll is between two looks at whether a transaction has committed.
const commitPoll = 5 * time.Millisecond

// in is the index as SQL names it.
func (x Index) in(schema string) string { return pgx.Identifier{schema, x.Name}.Sanitize() }
