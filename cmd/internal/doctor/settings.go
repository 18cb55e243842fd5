package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"
)

var settingChecks = []Check{
	{
		Name: "settings.isolation", About: "default_transaction_isolation",
		needs: needsPostgres, run: settingIsolation,
		Do: map[Level]string{Info: "firstseen asks for read committed itself. Handlers' own transactions elsewhere " +
			"get the default, and its serialization failures."},
	},
	{
		Name: "settings.read_only", About: "default_transaction_read_only", needs: needsPostgres, run: settingReadOnly,
		Do: map[Level]string{Fault: "Consumers wait while it is on. Find out who set it: some providers do when the " +
			"disk is full. Then: alter role ROLE reset default_transaction_read_only."},
	},
	{
		Name: "settings.durability", About: "fsync and full_page_writes", needs: needsPostgres, run: settingDurability,
		Do: map[Level]string{Fault: "Switch it on. A crash of the machine may otherwise lose message IDs, " +
			"or the whole database, and messages take effect twice."},
	},
	{
		Name: "settings.synchronous_commit", About: "synchronous_commit",
		needs: needsPostgres, run: settingSynchronous,
		Do: map[Level]string{Warning: "Set synchronous_commit to on for the consumer's role. " +
			"A crash otherwise loses the last transactions; they are made again from Kafka, if it still has them."},
	},
	{
		Name: "settings.timeouts", About: "time limits of the role against those of the handlers",
		needs: needsPostgres,
		run:   settingTimeouts,
		Do: map[Level]string{
			Warning: "Make it longer than timeouts.handler for the consumer's role, or shorten timeouts.handler: " +
				"alter role ROLE set NAME = '10min'.",
			Info: "A statement of a handler that waits longer than this for a lock fails, " +
				"and counts as an attempt. Raise it if handlers fail with it.",
		},
	},
	{
		Name: "settings.plans", About: "plan_cache_mode and session_replication_role", needs: needsPostgres,
		run: settingPlans,
		Do: map[Level]string{
			Fault: "Reset session_replication_role for the role: under replica no trigger fires, " +
				"and a handler's own COMMIT is not found out.",
			Info: "firstseen's functions set what they need. Handlers' statements are planned anew each time: " +
				"reset it unless they need that.",
		},
	},
	{
		Name: "settings.autovacuum", About: "autovacuum is on, everywhere",
		needs: needsPostgres, run: settingAutovacuum,
		Do: map[Level]string{Warning: "Switch it on: alter system set autovacuum = on (and track_counts), " +
			"or alter table TABLE reset (autovacuum_enabled)."},
	},
}

// setting is a parameter's value, and for whom.
type setting struct{ Name, Value, Of string }

// settingsSQL gives what this session has by default, and what the roles of consumers have that differs.
const settingsSQL = `
select name, reset_val || coalesce(case when unit in ('ms', 's', 'min') then unit end, ''), 'the role ' || current_user
from pg_settings where name = any($1)
union all
select lower(split_part(c, '=', 1)), substr(c, strpos(c, '=') + 1), 'the role ' || r.rolname
from pg_db_role_setting s
join pg_roles r on r.oid = s.setrole
cross join unnest(s.setconfig) c
where lower(split_part(c, '=', 1)) = any($1) and r.rolname <> current_user
	and s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
	and exists (select from pg_roles f where f.rolname = 'firstseen_consumer' and not r.rolsuper and pg_has_role(r.oid, f.oid, 'member'))
order by 3, 1`

// each gives the values of parameters to judge, those of this session and those of roles that consume.
func (p *target) each(ctx context.Context, judge func(setting), names ...string) error {
	found, err := query[setting](ctx, p, settingsSQL, names)
	for _, s := range found {
		judge(s)
	}
	return err
}

func settingIsolation(ctx context.Context, p *target, r *report) error {
	return p.each(ctx, func(s setting) {
		if s.Value != "read committed" {
			r.info("default_transaction_isolation is %s for %s", s.Value, s.Of)
		}
		r.ok("default_transaction_isolation is read committed")
	}, "default_transaction_isolation")
}

func settingReadOnly(ctx context.Context, p *target, r *report) error {
	return p.each(ctx, func(s setting) {
		if isOn(s.Value) {
			r.fault("default_transaction_read_only is on for %s", s.Of)
		}
		r.ok("default_transaction_read_only is off")
	}, "default_transaction_read_only")
}

func isOn(value string) bool {
	switch strings.ToLower(value) {
	case "on", "true", "yes", "1":
		return true
	}
	return false
}

func settingDurability(ctx context.Context, p *target, r *report) error {
	return p.each(ctx, func(s setting) {
		if !isOn(s.Value) {
			r.fault("%s is off", s.Name)
		}
		r.ok("fsync and full_page_writes are on")
	}, "fsync", "full_page_writes")
}

func settingSynchronous(ctx context.Context, p *target, r *report) error {
	return p.each(ctx, func(s setting) {
		if s.Value == "off" {
			r.warn("synchronous_commit is off for %s", s.Of)
		}
		r.ok("synchronous_commit is %s", s.Value)
	}, "synchronous_commit")
}

// handlerLimit bounds a handler's call.
func (p *target) handlerLimit() time.Duration {
	if p.Config != nil && p.Config.Timeouts.Handler > 0 {
		return p.Config.Timeouts.Handler
	}
	return 5 * time.Minute
}

func settingTimeouts(ctx context.Context, p *target, r *report) error {
	limit := p.handlerLimit()
	err := p.each(ctx, func(s setting) {
		set, ok := parseSetting(s.Value)
		switch {
		case !ok || set == 0 || set >= limit:
		case s.Name == "lock_timeout":
			r.info("lock_timeout is %s for %s", set, s.Of)
		default:
			r.warn("%s is %s for %s, and a handler may take %s", s.Name, set, s.Of, limit)
		}
	}, "statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout", "lock_timeout")
	r.ok("none is shorter than the %s that a handler may take", limit)
	return err
}

// parseSetting reads a time as Postgres writes it: 0, 250ms, 5min; without a unit milliseconds.
func parseSetting(value string) (time.Duration, bool) {
	var n float64
	var unit string
	if _, err := fmt.Sscanf(strings.ReplaceAll(value, " ", "")+" ", "%g%s", &n, &unit); err != nil && n == 0 {
		return 0, strings.HasPrefix(value, "0")
	}
	units := map[string]time.Duration{"": time.Millisecond, "us": time.Microsecond, "ms": time.Millisecond,
		"s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	of, known := units[unit]
	return time.Duration(n * float64(of)), known
}

func settingPlans(ctx context.Context, p *target, r *report) error {
	return p.each(ctx, func(s setting) {
		switch {
		case s.Name == "session_replication_role" && s.Value == "replica":
			r.fault("session_replication_role is replica for %s", s.Of)
		case s.Name == "plan_cache_mode" && s.Value != "auto":
			r.info("plan_cache_mode is %s for %s", s.Value, s.Of)
		}
		r.ok("plan_cache_mode is auto, and triggers fire")
	}, "plan_cache_mode", "session_replication_role")
}

func settingAutovacuum(ctx context.Context, p *target, r *report) error {
	err := p.each(ctx, func(s setting) {
		if !isOn(s.Value) {
			r.warn("%s is off", s.Name)
		}
	}, "autovacuum", "track_counts")
	if err != nil {
		return err
	}
	tables, err := texts(ctx, p, `select c.relname from pg_class c, unnest(c.reloptions) o
		where c.relnamespace = (select oid from pg_namespace where nspname = $1) and o in ('autovacuum_enabled=false', 'autovacuum_enabled=off')
		order by 1 limit 10`, p.Schema)
	for _, name := range tables {
		r.warn("autovacuum is off for the table %s", name)
	}
	r.ok("autovacuum is on")
	return err
}
