package online

import (
	"context"
	"fmt"
)

const columnSQL = `
select to_regtype($3) is not null, a.attname is not null, coalesce(a.atttypid = to_regtype($3), false)
from (select) one
left join pg_attribute a on a.attrelid = $1 and a.attname = $2 and not a.attisdropped`

// AddColumn adds a column, null in all rows: those that are there and those that programs insert who don't know it.
// One that is there already has to be of that type.
func (t *Table) AddColumn(ctx context.Context, name, dataType string) error {
	var isType, isThere, isSame bool
	err := t.conn.QueryRow(ctx, columnSQL, t.oid, name, dataType).Scan(&isType, &isThere, &isSame)
	switch {
	case err != nil:
	case !isType:
		err = fmt.Errorf("%q is no type", dataType)
	case !isThere:
		add := fmt.Sprintf(`alter table %s add column if not exists %s %s`, t.name, quote(name), dataType)
		err = t.alone(ctx, func() error { return t.briefly(ctx, add) })
	case !isSame:
		err = fmt.Errorf("it is there, and not of type %s", dataType)
	}
	return t.failed(ctx, "add column", name, err)
}
