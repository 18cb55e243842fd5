package crashtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// moveSequences sets all sequences some way on, by a prime, so that no rule about a number's digits or remainder
// holds.
const moveSequences = `do $$
declare
	s record;
begin
	for s in
		select format('%I.%I', schemaname, sequencename) as name, increment_by as step, max_value as most, min_value as least,
			coalesce(last_value, start_value) as at
		from pg_sequences where schemaname not in ('pg_catalog', 'information_schema')
	loop
		perform setval(s.name::regclass, greatest(s.least, least(s.most, s.at + 1009 * s.step)));
	end loop;
end $$`

// suspicion is a word in a function that does what no transaction takes back, or what no message determines.
type suspicion struct{ pattern, says string }

var suspicions = []suspicion{
	{`\mdblink|\mpg_background|\mautonomous_transaction`,
		"works in a second session, which commits by itself: what it does there happens again"},
	{`\mnextval\s*\(|\mlastval\s*\(|\msetval\s*\(`, "asks a sequence, which no transaction takes back"},
	{`\m(clock_timestamp|timeofday|statement_timestamp)\s*\(|\mnow\s*\(\s*\)|\mcurrent_(timestamp|date|time)\M`,
		"asks the clock, which is another at the next try; a message's own time is its produced_at"},
	{`\mrandom\s*\(|\mgen_random_uuid\s*\(|\muuid_generate_v|\muuidv[47]\s*\(`,
		"throws dice, which fall otherwise at the next try; a message's own number is its id"},
	{`create\s+(local\s+|global\s+)?temp`, "makes a temporary table, which is gone after the batch"},
	{`\mon\s+commit\s+(drop|delete|preserve)`, "has something done on commit"},
	{`\mpg_(try_)?advisory_lock(_shared)?\s*\(`, "takes a lock of the session, which a rollback leaves"},
	{`\mpg_notify\s*\(|\mnotify\s+\w`, "notifies: a listener that is away hears nothing, so let nothing depend on it"},
	{`\mlisten\s+\w`, "listens, in a session that is given back after the batch"},
	{`\m(lo_export|pg_file_write|pg_read_file)\s*\(|\mcopy\s+.*\s(to|from)\s+(program\M|'/)`,
		"touches files or programs, which no transaction takes back"},
	{`\mset_config\s*\([^)]*false\s*\)`, "changes a setting of the session, which is given back after the batch"},
}

const (
	selectUnlogged = `select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'p') and c.relpersistence = 'u' and n.nspname <> $1 order by 1`

	selectSuspects = `select distinct n.nspname || '.' || p.proname
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname not in ('pg_catalog', 'information_schema', $1) and n.nspname !~ '^pg_'
		and coalesce(nullif(p.prosrc, ''), pg_get_function_sqlbody(p.oid)) ~* $2
		and not exists (select from pg_depend e
			where e.classid = 'pg_proc'::regclass and e.objid = p.oid and e.deptype = 'e')
		order by 1`
)

// lookAt finds what the schema says by itself, without any luck: warnings, and no verdict.
func (s *stack) lookAt(ctx context.Context, t *trial, r *Result) error {
	db, err := pgx.Connect(ctx, s.dsn(template))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(ctx) }()
	unlogged, err := names(ctx, db, selectUnlogged, s.config.FirstseenSchema)
	if err != nil {
		return err
	}
	for _, one := range t.holds.list {
		if slices.Contains(unlogged, one.name) && len(one.rows) > 0 {
			r.warn("table %s is unlogged: a crash of Postgres empties it, and the messages are seen", one.name)
		}
	}
	for _, sp := range suspicions {
		functions, err := names(ctx, db, selectSuspects, s.config.FirstseenSchema, sp.pattern)
		if err != nil {
			return fmt.Errorf("look at the functions: %w", err)
		}
		for _, f := range functions {
			r.warn("function %s %s", f, sp.says)
		}
	}
	return nil
}

// lookAtDead tells of messages that were given up without any fault. Where no other is left there is nothing to try.
func (s *stack) lookAtDead(t *trial, r *Result) error {
	dead := t.holds.dead()
	if len(dead) == 0 {
		return nil
	}
	const id, reason, text = 3, 4, 5
	first := fmt.Sprintf("%s is one, for %s: %s", quoted(dead[0][id]), dead[0][reason], quoted(shownCell(dead[0][text])))
	if len(t.holds.origins) == 0 {
		return fmt.Errorf("without any fault all messages are dead letters; %s", first)
	}
	r.warn("without any fault %s a dead letter; %s", are(len(dead)), first)
	return nil
}

func are(n int) string {
	if n == 1 {
		return "1 message is"
	}
	return fmt.Sprintf("each of %d messages is", n)
}

func names(ctx context.Context, db *pgx.Conn, query string, args ...any) ([]string, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
