package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/migrations/dial"
)

var serverChecks = []Check{
	{
		Name: "postgres.reachable", About: "the database answers", run: postgresReachable,
		Do: map[Level]string{Fault: "Check the connection string (postgres.dsn), that Postgres runs, " +
			"and that its pg_hba.conf and the network let this host in."},
	},
	{
		Name: "postgres.version", About: "the server's version is one that is tested", needs: needsPostgres,
		run: postgresVersion,
		Do: map[Level]string{
			Fault: "Upgrade Postgres to 14 or newer.",
			Info:  "Look into the changelog whether a newer firstseen knows this version.",
		},
	},
	{
		Name: "postgres.standby", About: "the server takes writes", needs: needsPostgres, run: postgresStandby,
		Do: map[Level]string{Fault: "Point postgres.dsn at the primary, or list all hosts in it: " +
			"the primary among them is taken. Until then consumers wait."},
	},
	{
		Name: "postgres.encoding", About: "the database is in UTF8", needs: needsPostgres, run: postgresEncoding,
		Do: map[Level]string{Fault: "Create another database, create database NAME encoding 'UTF8' template " +
			"template0, and migrate that. A text in a script that the encoding lacks holds a partition for ever."},
	},
	{
		Name: "postgres.collation", About: "libc or ICU sorts texts as it did when the database was made",
		needs: needsPostgres, run: postgresCollation,
		Do: map[Level]string{Warning: "firstseen's keys compare bytes and are not affected. " +
			"Reindex your own indexes on texts, reindex database NAME, and then: alter database NAME refresh " +
			"collation version."},
	},
	{
		Name: "postgres.clock", About: "the clocks of Postgres and of this host agree", needs: needsPostgres,
		run: postgresClock,
		Do: map[Level]string{Warning: "Synchronise both hosts' clocks (NTP). Ages, lag times and what \"2h " +
			"ago\" means are off by the difference."},
	},
	{
		Name: "postgres.connections", About: "there are connections left for what the config wants",
		needs: needsPostgres,
		run:   postgresConnections,
		Do: map[Level]string{
			Fault: "Raise max_connections, or the limit of the role or database, or lower postgres.max_connections.",
			Warning: "Raise max_connections, put a pooler in between, " +
				"or lower postgres.max_connections and batch.transactions.",
		},
	},
	{
		Name: "postgres.pooler", About: "a pooler in between keeps prepared statements", needs: needsPostgres,
		run: postgresPooler,
		Do: map[Level]string{
			Fault: "Set postgres.prepared_statements to false, or have the pooler keep them (PgBouncer 1.21: " +
				"max_prepared_statements).",
			Warning: "Set postgres.prepared_statements to false unless the pooler is known to keep them " +
				"(PgBouncer 1.21: max_prepared_statements).",
			Info: "Run migrations past the pooler: they hold a session's lock.",
		},
	},
}

func postgresReachable(ctx context.Context, p *target, r *report) error {
	if p.DSN == "" {
		return errors.New("no database is given")
	}
	begun := p.now()
	if err := p.connect(ctx); err != nil {
		r.fault("%s", explained(dial.Advise(err)))
		return nil
	}
	r.ok("it answered within %s", p.now().Sub(begun).Round(time.Millisecond))
	return nil
}

func postgresVersion(ctx context.Context, p *target, r *report) error {
	version, err := one[struct {
		Number int
		Name   string
	}](ctx, p, `select current_setting('server_version_num')::int, current_setting('server_version')`)
	if err != nil {
		return err
	}
	switch major := cmp.Or(p.major, version.Number/10000); {
	case major < 14:
		r.fault("Postgres is %s; firstseen needs 14 or newer", version.Name)
	case major > 18:
		r.info("Postgres is %s; this build was tested with 14 to 18", version.Name)
	}
	r.ok("Postgres is %s", version.Name)
	return nil
}

func postgresStandby(ctx context.Context, p *target, r *report) error {
	standby, err := one[struct{ Is bool }](ctx, p, `select pg_is_in_recovery()`)
	if standby.Is {
		r.fault("the server is a standby: nothing can be written there")
	}
	r.ok("the server is a primary")
	return err
}

func postgresEncoding(ctx context.Context, p *target, r *report) error {
	encoding, err := one[struct{ Name string }](ctx, p, `select current_setting('server_encoding')`)
	if err != nil {
		return err
	}
	if encoding.Name != "UTF8" {
		r.fault("the database's encoding is %s, and firstseen needs UTF8", encoding.Name)
	}
	r.ok("the database is in UTF8")
	return nil
}

const collationSQL = `
select coalesce(datcollversion, ''), coalesce(pg_database_collation_actual_version(oid), 'unknown')
from pg_database where datname = current_database()`

func postgresCollation(ctx context.Context, p *target, r *report) error {
	version, err := one[struct{ Number int }](ctx, p, `select current_setting('server_version_num')::int`)
	if err != nil {
		return err
	}
	if version.Number < 150000 {
		r.ok("Postgres keeps no collation version of a database before version 15")
		return nil
	}
	collation, err := one[struct{ Made, Actual string }](ctx, p, collationSQL)
	if err != nil {
		return err
	}
	if collation.Made != "" && collation.Made != collation.Actual {
		r.warn("the database was made with version %s of its collation, which is %s now",
			collation.Made, collation.Actual)
	}
	r.ok("the database's collation is the one that it was made with")
	return nil
}

func postgresClock(ctx context.Context, p *target, r *report) error {
	var skew, trip time.Duration
	err := p.look(ctx, func(tx pgx.Tx) error {
		var at time.Time
		begun := p.now()
		err := tx.QueryRow(ctx, `select clock_timestamp()`).Scan(&at)
		trip = p.now().Sub(begun)
		skew = at.Sub(begun.Add(trip / 2))
		return err
	})
	if err != nil {
		return err
	}
	if skew.Abs() > p.limits.skew+trip {
		r.warn("Postgres' clock is %s %s this host's", skew.Abs().Round(time.Millisecond), aheadOrBehind(skew))
	}
	r.ok("the clocks differ by less than %s", p.limits.skew+trip.Round(time.Millisecond))
	return nil
}

func aheadOrBehind(d time.Duration) string {
	if d < 0 {
		return "behind"
	}
	return "ahead of"
}

const connectionsSQL = `
select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
		- coalesce(current_setting('reserved_connections', true)::int, 0),
	(select count(*)::int from pg_stat_activity where backend_type = 'client backend'),
	(select case when rolconnlimit < 0 then 1000000 else rolconnlimit end from pg_roles where rolname = current_user),
	(select count(*)::int from pg_stat_activity where usename = current_user),
	(select case when datconnlimit < 0 then 1000000 else datconnlimit end from pg_database where datname = current_database()),
	(select count(*)::int from pg_stat_activity where datname = current_database())`

func postgresConnections(ctx context.Context, p *target, r *report) error {
	c, err := one[struct{ Max, Used, RoleMax, RoleUsed, DatabaseMax, DatabaseUsed int }](ctx, p, connectionsSQL)
	if err != nil {
		return err
	}
	want := p.wantsConnections()
	for _, l := range []struct {
		what      string
		max, used int
	}{{"the server", c.Max, c.Used}, {"the role", c.RoleMax, c.RoleUsed}, {"the database", c.DatabaseMax,
		c.DatabaseUsed}} {
		switch {
		case l.max < want:
			r.fault("%s allows %d connections, and each process wants up to %d", l.what, l.max, want)
		case l.used+want > l.max:
			r.warn("%d of the %d connections of %s are taken, and a process more wants up to %d",
				l.used, l.max, l.what, want)
		}
	}
	r.ok("%d of %d connections are taken; each process wants up to %d", c.Used, c.Max, want)
	return nil
}

// wantsConnections is the most that one process of the config opens.
func (p *target) wantsConnections() int {
	const usual = 8
	if p.Config == nil || p.Config.Postgres.MaxConnections <= 0 {
		return usual
	}
	return p.Config.Postgres.MaxConnections
}

// pooled describes a pooler.
type pooled struct {
	between bool // something answers in the server's place
	shared  bool // two clients were given one connection of the server: it pools by transaction
	lost    bool // a statement that was prepared was gone at the next
}

func postgresPooler(ctx context.Context, p *target, r *report) error {
	found, err := p.findPooler(ctx)
	if err != nil {
		return err
	}
	prepares := p.Config == nil || p.Config.Postgres.PreparedStatements
	switch {
	case !found.between:
		r.ok("there is no pooler")
	case found.lost && prepares && p.Config != nil:
		r.fault("a pooler pools by transaction and loses prepared statements, " +
			"and postgres.prepared_statements is true")
	case found.lost && p.Config == nil:
		r.warn("a pooler pools by transaction and loses prepared statements")
	case !found.shared && prepares:
		r.info("a pooler is in between; whether it pools by transaction did not show")
	default:
		r.info("a pooler is in between, and the config copes with it")
	}
	return nil
}

// findPooler tells a pooler by the process number of the connection, which is the pooler's own and not the server's.
// Two clients are then played: where the second meets the first one's connection, the first one's next statement goes
// to another connection, and shows whether what it prepared is there.
func (p *target) findPooler(ctx context.Context) (found pooled, err error) {
	first, err := p.pool.Acquire(ctx)
	if err != nil {
		return found, err
	}
	defer first.Release()
	conn := first.Conn()
	var pid uint32
	if err := conn.QueryRow(ctx, `select pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return found, err
	}
	if found.between = pid != conn.PgConn().PID(); !found.between {
		return found, nil
	}
	second, err := p.pool.Acquire(ctx)
	if err != nil {
		return found, err
	}
	defer second.Release()
	for range 5 {
		if err := playTwo(ctx, conn, second.Conn(), &found); err != nil || found.shared {
			return found, err
		}
	}
	return found, nil
}

// playTwo has the first client prepare a statement, the second take a connection, and the first use the statement.
func playTwo(ctx context.Context, first, second *pgx.Conn, found *pooled) (err error) {
	name := fmt.Sprintf("firstseen_doctor_%d", time.Now().UnixNano())
	if _, err := first.PgConn().Prepare(ctx, name, `select pg_backend_pid()`, nil); err != nil {
		return err
	}
	defer func() { _ = first.PgConn().Deallocate(ctx, name) }()
	var before, taken uint32
	if err := first.QueryRow(ctx, `select pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&before); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, second, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `select pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&taken); err != nil ||
			taken != before {
			return err
		}
		found.shared = true
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		result := first.PgConn().ExecPrepared(limited, name, nil, nil, nil).Read()
		found.lost = failure.Code(result.Err) == "26000" // invalid_sql_statement_name
		return nil
	})
}
