package dedup

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// missingRightsSQL has what roles.sql grants to firstseen_consumer: functions that run as the owner are for others,
// but for these.
const missingRightsSQL = `
with me as (select coalesce(nullif($2, ''), current_user)::name as role),
needed (name, privileges) as (values
	('schema_version', '{select}'), ('pauses', '{select}'), ('dead_letters', '{select,insert}'), ('scopes', '{select,insert}'),
	('message_dedup', '{select,insert}'), ('inbox', '{select,insert}'), ('conflicts', '{select,insert}'),
	('parked', '{select,insert,update,delete}'), ('lanes', '{select,insert,update,delete}'), ('positions', '{select,insert,update}'),
	('unsealed', '{select,insert,delete}'), ('replays', '{select,insert,delete}'),
	('holds', '{select,insert,update,delete}'), ('enqueued', '{select}'), ('participants', '{select}'),
	('turns', '{select,insert,delete}'), ('outbox', '{select,insert,delete}'), ('outbox_delayed', '{select,update,delete}'),
	('outbox_shards', '{select,insert,update}'), ('jobs', '{select}'), ('job_replays', '{select}'), ('shards', '{select}')),
missing (text, kind) as (
	select 'usage of the schema', 0 from me, pg_namespace where nspname = $1 and not has_schema_privilege(me.role, oid, 'usage')
	union all
	select privilege || ' on ' || c.relname, 1
	from me, needed n
	cross join unnest(n.privileges::text[]) privilege
	join pg_class c on c.relname = n.name
	where c.relnamespace = (select oid from pg_namespace where nspname = $1) and not has_table_privilege(me.role, c.oid, privilege)
	union all
	select 'update of published_at on dead_letters', 1
	from me, pg_class c
	where c.relname = 'dead_letters' and c.relnamespace = (select oid from pg_namespace where nspname = $1)
		and not has_column_privilege(me.role, c.oid, 'published_at', 'update')
	union all
	select 'usage of the sequence ' || c.relname, 1
	from me, pg_class c
	where c.relname = 'message_seq' and c.relnamespace = (select oid from pg_namespace where nspname = $1)
		and not has_sequence_privilege(me.role, c.oid, 'usage')
	union all
	select 'execute of ' || p.proname, 2
	from me, pg_proc p
	where p.pronamespace = (select oid from pg_namespace where nspname = $1) and (not p.prosecdef or p.proname in ('make_partitions', 'forget_partitions', 'enqueue', 'work_job',
			'sweep_jobs', 'take_replay', 'tell_replay', 'wake_lanes'))
		and not has_function_privilege(me.role, p.oid, 'execute'))
select text from missing order by kind, text`

// MissingRights lists what a role may not do in the store's schema that a consumer must; empty: the role of the
// pool. A role that is not there is an error.
func (s *Store) MissingRights(ctx context.Context, role string) (missing []string, err error) {
	err = s.Answered(ctx, 0, func(ctx context.Context) (err error) {
		missing, err = db.Collect(ctx, s.db, pgx.RowTo[string], missingRightsSQL, s.cfg.Schema, role)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at the rights in schema %s: %w", s.cfg.Schema, err)
	}
	return missing, nil
}

// checkRights finds out at the start what would fail later, or not be done.
func (s *Store) checkRights(ctx context.Context) error {
	missing, err := s.MissingRights(ctx, "")
	if err != nil || len(missing) == 0 {
		return err
	}
	const named = 3
	text := strings.Join(missing[:min(named, len(missing))], ", ")
	if more := len(missing) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("the login lacks rights of a consumer in schema %s (%s): %s", s.cfg.Schema, text, db.RolesAdvice)
}
