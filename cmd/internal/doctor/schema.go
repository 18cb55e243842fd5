package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/migrations"
)

var schemaChecks = []Check{
	{
		Name: "schema.version", About: "the schema is the one that this build needs", needs: needsPostgres,
		run: schemaVersion,
		Do: map[Level]string{Fault: "Run `firstseen migrate up` with the build that is to run; " +
			"a schema that is newer needs a newer build."},
	},
	{
		Name: "schema.id_key", About: "message IDs are held by a primary key that is whole", needs: needsSchema,
		run: schemaIDKey,
		Do: map[Level]string{
			Fault: "Stop the consumers: copies may take effect again. Restore what the migrations made: alter table " +
				"firstseen.message_dedup add primary key (scope_id, message_id), after the copies in it are removed.",
		},
	},
	{
		Name: "schema.functions", About: "functions and their settings are as the migrations made them",
		needs: needsSchema,
		run:   schemaFunctions,
		Do: map[Level]string{
			Fault: "Put the function back as `firstseen migrate print` shows it. Another search path or " +
				"other plan settings make it unsafe or slow.",
		},
	},
	{
		Name: "schema.plan", About: "IDs are looked up through the primary key", needs: needsInbox, run: schemaPlan,
		Do: map[Level]string{Fault: "See schema.id_key and schema.functions; " +
			"then run analyze firstseen.message_dedup."},
	},
	{
		Name: "schema.triggers", About: "the triggers that seal a batch are there and fire", needs: needsSchema,
		run: schemaTriggers,
		Do: map[Level]string{
			Fault: "Enable it: alter table firstseen.TABLE enable trigger TRIGGER. " +
				"Without it a handler that commits " +
				"by itself is not found out, and messages may take effect in halves.",
		},
	},
	{
		Name: "schema.rights", About: "who consumes can't forget message IDs", needs: needsSchema, run: schemaRights,
		Do: map[Level]string{
			Warning: "Run `firstseen migrate roles` again, and take the role out of those " +
				"that own the schema or were granted more.",
			Info: "Make the roles, `firstseen migrate roles`, and have the consumer " +
				"log in as a member of firstseen_consumer.",
		},
	},
	{
		Name: "schema.login", About: "the config's login may do what a consumer must", needs: needsConfig | needsInbox,
		run: schemaLogin,
		Do: map[Level]string{
			Fault: "Run `firstseen migrate roles`, as after each upgrade, and grant the login " +
				"firstseen_consumer. Until then no consumer starts.",
		},
	},
}

func schemaVersion(ctx context.Context, p *target, r *report) error {
	found, err := one[struct{ Version int64 }](ctx, p, migrations.VersionSQL)
	switch need := migrations.Latest(); {
	case failure.NoTable(err):
		r.fault("the schema %s is not there", p.Schema)
	case err != nil:
		return err
	case found.Version != need:
		r.fault("the schema %s is at version %d and this build needs %d", p.Schema, found.Version, need)
	default:
		r.ok("the schema %s is at version %d", p.Schema, need)
	}
	return nil
}

const idKeySQL = `
select to_regclass('firstseen.message_dedup') is not null,
	coalesce((
		select i.indisprimary and i.indisunique
			and array(select a.attname::text from unnest(i.indkey) with ordinality k (num, nth)
				join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.num order by k.nth) = '{scope_id,message_id}'
		from pg_index i where i.indexrelid = to_regclass('firstseen.message_dedup_pkey')
			and i.indrelid = to_regclass('firstseen.message_dedup')), false),
	coalesce((select i.indisvalid and i.indisready and i.indislive and i.indimmediate
		from pg_index i where i.indexrelid = to_regclass('firstseen.message_dedup_pkey')), false),
	coalesce((select c.relpersistence = 'u' from pg_class c where c.oid = to_regclass('firstseen.message_dedup')), false)`

func schemaIDKey(ctx context.Context, p *target, r *report) error {
	k, err := one[struct{ Table, Key, Valid, Unlogged bool }](ctx, p, idKeySQL)
	switch {
	case err != nil:
		return err
	case !k.Table:
		r.fault("the table message_dedup is not there")
	case !k.Key:
		r.fault("the table message_dedup has no primary key message_dedup_pkey of (scope_id, message_id)")
	case !k.Valid:
		r.fault("the index message_dedup_pkey is not valid")
	case k.Unlogged:
		r.fault("the table message_dedup is unlogged: a crash of Postgres empties it")
	}
	r.ok("message_dedup has its primary key (scope_id, message_id)")
	return nil
}

const functionsSQL = `
select p.proname::text, p.prosrc,
	array(select lower(split_part(c, '=', 1)) || '=' || substr(c, strpos(c, '=') + 1) from unnest(p.proconfig) c), p.prosecdef
from pg_proc p
where p.pronamespace = (select oid from pg_namespace where nspname = $1)`

func schemaFunctions(ctx context.Context, p *target, r *report) error {
	want, err := migrations.Functions(migrations.Config{Schema: p.Schema})
	if err != nil {
		return err
	}
	have, err := query[migrations.Function](ctx, p, functionsSQL, p.Schema)
	if err != nil {
		return err
	}
	for i := range have {
		slices.Sort(have[i].Settings)
	}
	for _, w := range want {
		if fault := compareFunction(w, have); fault != "" {
			r.fault("the function %s %s", w.Name, fault)
		}
	}
	r.ok("functions that are as they were made: %d", len(want))
	return nil
}

// compareFunction says what is wrong with a function; empty: nothing.
func compareFunction(want migrations.Function, have []migrations.Function) string {
	fault := "is not there"
	for _, h := range have {
		switch {
		case h.Name != want.Name:
		case h.Body != want.Body:
			fault = "has another body than the migrations made"
		case !slices.Equal(h.Settings, want.Settings):
			return fmt.Sprintf("runs under (%s) instead of (%s)",
				strings.Join(h.Settings, "; "), strings.Join(want.Settings, "; "))
		case h.Definer != want.Definer:
			return "runs with other rights than the migrations gave it (security definer or invoker)"
		default:
			return ""
		}
	}
	return fault
}

func schemaPlan(ctx context.Context, p *target, r *report) error {
	plan, byKey, err := p.lookupPlan(ctx)
	if err != nil {
		return err
	}
	if !byKey {
		r.fault("IDs are not looked up through message_dedup_pkey: %s", strings.Join(strings.Fields(plan), " "))
	}
	r.ok("IDs are looked up through message_dedup_pkey")
	return nil
}

const triggersSQL = `
select w.trigger_name, w.table_name, coalesce((
	select t.tgenabled::text from pg_trigger t
	where t.tgname = w.trigger_name and t.tgrelid = to_regclass('firstseen.' || w.table_name)), '')
from (values ('positions_sealed', 'positions'), ('unsealed_sealed', 'unsealed')) w (trigger_name, table_name)`

func schemaTriggers(ctx context.Context, p *target, r *report) error {
	found, err := query[struct{ Trigger, Table, Enabled string }](ctx, p, triggersSQL)
	for _, t := range found {
		switch t.Enabled {
		case "O", "A":
		case "":
			r.fault("the trigger %s of the table %s is not there", t.Trigger, t.Table)
		default:
			r.fault("the trigger %s of the table %s is disabled", t.Trigger, t.Table)
		}
	}
	r.ok("both are there and enabled")
	return err
}

// rightsSQL lists the roles that consume and may forget or change IDs: logins among firstseen_consumer's members, and
// whoever was granted more than the roles' script grants. Superusers and the owner may always.
const rightsSQL = `
with dedup as (select c.oid, c.relowner, c.relacl from pg_class c where c.oid = to_regclass('firstseen.message_dedup'))
select case when a.grantee = 0 then 'public' else a.grantee::regrole::text end, string_agg(distinct lower(a.privilege_type), ', ')
from dedup d
cross join aclexplode(d.relacl) a
where a.grantee <> d.relowner and a.privilege_type in ('DELETE', 'UPDATE', 'TRUNCATE')
group by 1
union
select r.rolname::text, 'delete'
from dedup d
join pg_roles r on not r.rolsuper and r.rolname <> 'firstseen_consumer'
join pg_roles f on f.rolname = 'firstseen_consumer' and pg_has_role(r.oid, f.oid, 'member')
where has_table_privilege(r.oid, d.oid, 'delete')
order by 1
limit 20`

func schemaRights(ctx context.Context, p *target, r *report) error {
	found, err := query[struct{ Role, Rights string }](ctx, p, rightsSQL)
	if err != nil {
		return err
	}
	for _, f := range found {
		r.warn("the role %s may %s in message_dedup", f.Role, f.Rights)
	}
	missing, err := texts(ctx, p,
		`select w.role from (values ('firstseen_owner'), ('firstseen_consumer'), ('firstseen_operator'),
		('firstseen_retention'), ('firstseen_sender')) w (role) where not exists (select from pg_roles where rolname = w.role)`)
	if len(missing) > 0 {
		r.info("of the five roles these are not there: %s; who consumes, cleans up or adds to the outbox logs in as "+
			"who owns the IDs", strings.Join(missing, ", "))
	}
	r.ok("no role that consumes may forget an ID")
	return err
}

// schemaLogin looks at the login that the config names, whoever asks.
func schemaLogin(ctx context.Context, p *target, r *report) error {
	conf, err := p.Config.Pool()
	if err != nil {
		return errors.New("the config's connection string can't be read")
	}
	login := conf.ConnConfig.User
	missing, err := p.inbox.Store().MissingRights(ctx, login)
	if failure.NoObject(err) {
		r.fault("the role %s is not there", login)
		return nil
	}
	for _, right := range missing {
		r.fault("the role %s lacks: %s", login, right)
	}
	r.ok("the role %s may", login)
	return err
}
