package doctor

import (
	"context"
	"fmt"
	"time"
)

var sessionChecks = []Check{
	{
		Name: "sessions.transactions", About: "no transaction is open for long",
		needs: needsPostgres, run: longTransactions,
		Do: map[Level]string{
			Warning: "Find out what the session does and end it, select pg_terminate_backend(PID): " +
				"while it is open vacuum removes nothing, and tables and indexes grow.",
		},
	},
	{
		Name: "sessions.locks", About: "no consumer waits for a lock for long",
		needs: needsPostgres, run: waitingForLocks,
		Do: map[Level]string{
			Warning: "Find out what the session that holds the lock does; " +
				"to end it: select pg_terminate_backend(PID).",
		},
	},
	{
		Name: "sessions.prepared", About: "no prepared transaction was left behind", needs: needsPostgres,
		run: preparedTransactions,
		Do: map[Level]string{Warning: "Ask its transaction manager; else: rollback prepared 'NAME'. " +
			"It holds its locks, and holds vacuum back, across restarts."},
	},
	{
		Name: "sessions.slots", About: "no unused replication slot holds WAL",
		needs: needsPostgres, run: replicationSlots,
		Do: map[Level]string{Warning: "Bring its reader back, or drop it: select pg_drop_replication_slot('NAME'). " +
			"The WAL it holds fills the disk."},
	},
}

const longSQL = `
select pid, coalesce(usename, ''), coalesce(application_name, ''), coalesce(state, ''),
	extract(epoch from clock_timestamp() - xact_start)::float8
from pg_stat_activity
where backend_type = 'client backend' and datname = current_database() and pid <> pg_backend_pid()
	and clock_timestamp() - xact_start > make_interval(secs => $1)
order by xact_start
limit 10`

// hiddenSQL counts the sessions of which this role is not told what they do.
const hiddenSQL = `
select count(*) from pg_stat_activity
where datname = current_database() and query = '<insufficient privilege>'`

func longTransactions(ctx context.Context, p *target, r *report) error {
	found, err := query[struct {
		PID                      int32
		Role, Application, State string
		Seconds                  float64
	}](ctx, p, longSQL, p.limits.openTransaction.Seconds())
	if err != nil {
		return err
	}
	for _, t := range found {
		r.warn("session %d of %s (%q) has had a transaction open for %s; it is %s", t.PID, t.Role, t.Application,
			age(t.Seconds), t.State)
	}
	hidden, err := one[struct{ Sessions int64 }](ctx, p, hiddenSQL)
	if hidden.Sessions > 0 {
		r.notChecked(fmt.Errorf("%d sessions of other roles, which %w", hidden.Sessions, errNotShown))
	}
	r.ok("no transaction is older than %s", p.limits.openTransaction)
	return err
}

const locksSQL = `
select w.pid, coalesce(w.application_name, ''), extract(epoch from clock_timestamp() - l.waitstart)::float8,
	b.pid, coalesce(b.usename, ''), coalesce(b.application_name, ''), coalesce(b.state, 'not shown')
from pg_locks l
join pg_stat_activity w on w.pid = l.pid
join pg_roles r on r.oid = w.usesysid
cross join lateral unnest(pg_blocking_pids(l.pid)) blocker
join pg_stat_activity b on b.pid = blocker
where not l.granted and w.datname = current_database() and w.pid <> pg_backend_pid()
	and clock_timestamp() - l.waitstart > make_interval(secs => $1)
	and (w.application_name like 'firstseen%' or not r.rolsuper and exists (
		select from pg_roles f where f.rolname = 'firstseen_consumer' and pg_has_role(r.oid, f.oid, 'member')))
order by l.waitstart
limit 10`

func waitingForLocks(ctx context.Context, p *target, r *report) error {
	found, err := query[struct {
		PID                      int32
		Application              string
		Seconds                  float64
		Blocker                  int32
		Role, BlockerName, State string
	}](ctx, p, locksSQL, p.limits.lockWait.Seconds())
	for _, w := range found {
		r.warn("session %d (%q) has waited for %s for a lock of session %d of %s (%q), which is %s",
			w.PID, w.Application, age(w.Seconds), w.Blocker, w.Role, w.BlockerName, w.State)
	}
	r.ok("none has waited for longer than %s", p.limits.lockWait)
	return err
}

// age is a number of seconds as people read it.
func age(seconds float64) time.Duration {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d > time.Hour:
		return d.Round(time.Minute)
	case d > time.Minute:
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

func preparedTransactions(ctx context.Context, p *target, r *report) error {
	found, err := query[struct {
		Name, Owner string
		Seconds     float64
	}](ctx, p, `select gid, owner, extract(epoch from clock_timestamp() - prepared)::float8 from pg_prepared_xacts
		where clock_timestamp() - prepared > make_interval(secs => $1) order by prepared limit 10`,
		p.limits.prepared.Seconds())
	for _, t := range found {
		r.warn("the transaction %q of %s was prepared %s ago", t.Name, t.Owner, age(t.Seconds))
	}
	r.ok("there is no old one")
	return err
}

const slotsSQL = `
select s.slot_name, coalesce(pg_wal_lsn_diff(w.at, s.restart_lsn), 0)::bigint, coalesce(s.wal_status = 'lost', false)
from pg_replication_slots s
cross join (select case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end as at) w
where not s.active
order by 2 desc
limit 10`

func replicationSlots(ctx context.Context, p *target, r *report) error {
	found, err := query[struct {
		Name string
		Held int64
		Lost bool
	}](ctx, p, slotsSQL)
	for _, s := range found {
		switch {
		case s.Lost:
			r.warn("the slot %s is unused and has lost WAL that its reader needs", s.Name)
		case s.Held > p.limits.slotBytes:
			r.warn("the slot %s is unused and holds %s of WAL", s.Name, size(s.Held))
		}
	}
	r.ok("no unused slot holds more than %s of WAL", size(p.limits.slotBytes))
	return err
}

// size is a number of bytes as people read it.
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1024, 0
	for ; f >= 1024 && unit < len(units)-1; unit++ {
		f /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", f, units[unit])
}
