package crashtest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// tables is what a run has left behind.
type tables struct {
	list []*table
	// origins are the messages that are in Postgres, by place and offset: what they are known by there.
	origins map[origin]known
}

type origin struct {
	place
	offset int64
}

// known is what a message is known by.
type known struct{ id, rawID string }

// table is one, with its rows as texts.
type table struct {
	name    string // schema.table
	from    string // as SQL
	columns []column
	key     []int // the columns of the primary key
	rows    [][]string
}

type column struct {
	name  string
	value string // as SQL
	// fills is what Postgres fills it in from by itself: a sequence, a clock, chance; empty: nothing.
	fills string
	// beside says that it is read, and never compared.
	beside bool
}

// null stands for a null in rows.
const null = "\x00null"

// selectColumns finds the columns of ordinary tables, in order. Partitions are read by their parents.
const selectColumns = `
	select n.nspname || '.' || c.relname, format('%I.%I', n.nspname, c.relname), a.attname, quote_ident(a.attname),
		case
		when a.attidentity <> '' or pg_get_expr(d.adbin, d.adrelid) ~* '\mnextval\(' then 'a sequence'
		when pg_get_expr(d.adbin, d.adrelid)
			~* '\m(now|timeofday|(clock|statement|transaction)_timestamp)\(|\m(current|local)_?(timestamp|date|time)\M'
			then 'the time'
		when pg_get_expr(d.adbin, d.adrelid) ~* '\m(gen_random_uuid|uuidv4|uuidv7|uuid_generate_v\w+|random)\(' then 'chance'
		else '' end,
		coalesce(a.attnum = any(i.indkey), false)
	from pg_class c
	join pg_namespace n on n.oid = c.relnamespace
	join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
	left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
	left join pg_index i on i.indrelid = c.oid and i.indisprimary
	where c.relkind in ('r', 'p') and not c.relispartition
	and n.nspname not in ('information_schema', $1) and n.nspname !~ '^pg_'
	and not exists (select from pg_depend e where e.classid = 'pg_class'::regclass and e.objid = c.oid and e.deptype = 'e')
	order by 1, a.attnum`

// read reads what a run has left behind: the tables that are to be compared, dead letters, and the outbox.
func (s *stack) read(ctx context.Context, db *pgxpool.Pool) (*tables, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	t := &tables{}
	if err := s.list(ctx, db, t); err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	t.list = append(t.list, s.dead(), s.outbox())
	for _, one := range t.list {
		if err := one.read(ctx, db); err != nil {
			return nil, fmt.Errorf("read table %s: %w", one.name, err)
		}
	}
	return t, t.readOrigins(ctx, db, s.own("inbox"))
}

// list finds the tables.
func (s *stack) list(ctx context.Context, db *pgxpool.Pool, t *tables) error {
	rows, err := db.Query(ctx, selectColumns, s.config.FirstseenSchema)
	if err != nil {
		return err
	}
	var name, from string
	var c column
	var isKey bool
	var last *table
	_, err = pgx.ForEachRow(rows, []any{&name, &from, &c.name, &c.value, &c.fills, &isKey}, func() error {
		if len(s.config.Tables) > 0 && !slices.Contains(s.config.Tables, name) {
			return nil
		}
		if last == nil || last.name != name {
			last = &table{name: name, from: from}
			t.list = append(t.list, last)
		}
		if isKey {
			last.key = append(last.key, len(last.columns))
		}
		last.columns = append(last.columns, c)
		return nil
	})
	return err
}

// dead are the rows of dead letters.
func (t *tables) dead() [][]string {
	for _, one := range t.list {
		if one.name == deadLetters {
			return one.rows
		}
	}
	return nil
}

// deadLetters is the name of a table that is none of Postgres'.
const deadLetters = "dead letters"

// dead are the messages that were given up, as a table.
func (s *stack) dead() *table {
	return &table{name: deadLetters, key: []int{0, 1, 2, 3},
		from: s.own("dead_letters") + ` d join ` + s.own("scopes") + ` s using (scope_id)`,
		columns: []column{{name: "handler", value: "s.handler"}, {name: "tenant", value: "s.tenant"},
			{name: "topic", value: "d.topic"}, {name: "id", value: "coalesce(d.raw_id, d.message_id::text)"},
			{name: "reason", value: "d.reason"}, {name: "error", value: "d.error", beside: true}}}
}

// outbox is what is to be sent, as a table.
func (s *stack) outbox() *table {
	const some = `select topic, tenant, raw_id, key, headers, payload from `
	return &table{name: "outbox",
		from: `(` + some + s.own("outbox") + ` union all ` + some + s.own("outbox_delayed") + `) o`,
		columns: []column{{name: "topic", value: "topic"}, {name: "tenant", value: "tenant"},
			{name: "idempotency_key", value: "raw_id"}, {name: "key", value: "encode(key, 'escape')"},
			{name: "headers", value: "encode(headers, 'escape')"}, {name: "payload", value: "encode(payload, 'escape')"}}}
}

// own is one of firstseen's tables.
func (s *stack) own(table string) string {
	return pgx.Identifier{s.config.FirstseenSchema, table}.Sanitize()
}

// read reads a table's rows, sorted.
func (t *table) read(ctx context.Context, db *pgxpool.Pool) error {
	values := make([]string, len(t.columns))
	for i, c := range t.columns {
		values[i] = "(" + c.value + ")::text"
	}
	rows, err := db.Query(ctx, "select array["+strings.Join(values, ", ")+"]::text[] from "+t.from)
	if err != nil {
		return err
	}
	var cells []*string
	_, err = pgx.ForEachRow(rows, []any{&cells}, func() error {
		row := make([]string, len(cells))
		for i, cell := range cells {
			if row[i] = null; cell != nil {
				row[i] = *cell
			}
		}
		t.rows = append(t.rows, row)
		return nil
	})
	slices.SortFunc(t.rows, slices.Compare)
	return err
}

// readOrigins reads what the messages that have taken effect are known by.
func (t *tables) readOrigins(ctx context.Context, db *pgxpool.Pool, inbox string) error {
	t.origins = map[origin]known{}
	rows, err := db.Query(ctx, `select topic, "partition", "offset", message_id::text, coalesce(raw_id, '') from `+
		inbox+` where "partition" is not null`)
	if err != nil {
		return err
	}
	var at origin
	var k known
	_, err = pgx.ForEachRow(rows, []any{&at.topic, &at.partition, &at.offset, &k.id, &k.rawID}, func() error {
		t.origins[at] = k
		return nil
	})
	return err
}
