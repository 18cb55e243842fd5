package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// troubles are the broken states of each check.
var troubles = func() map[string][]trouble {
	all := map[string][]trouble{}
	for _, some := range []map[string][]trouble{configTroubles, serverTroubles, settingTroubles,
		storedTroubles, runningTroubles, httpTroubles, outboxTroubles, kafkaTroubles, shardTroubles} {
		maps.Copy(all, some)
	}
	return all
}()

// configured is a trouble of the config alone.
func configured(level Level, seen string, change func(*config.Config)) trouble {
	return trouble{level, seen, func(l *lab) { l.also(change) }}
}

const faraway = "broker.example:9092"

var configTroubles = map[string][]trouble{
	"config.loads": {{Fault, `topics\[0\].name: is missing`, func(l *lab) {
		l.target = func(p *target) {
			p.ConfigErr = &config.Error{Faults: []config.Fault{{Key: "topics[0].name", Text: "is missing"}}}
		}
	}}, {Fault, `no way`, func(l *lab) { l.target = func(p *target) { p.ConfigErr = errors.New("no way") } }}},
	"config.secret_files": {{Warning, `dsn has mode 0644: every user`, func(l *lab) {
		name := filepath.Join(l.t.TempDir(), "dsn")
		require.NoError(l.t, os.WriteFile(name, []byte("postgres://"), 0o600))
		require.NoError(l.t, os.Chmod(name, 0o644))
		l.also(func(c *config.Config) { c.Postgres.DSNFile = name })
	}}, {Warning, `firstseen.yaml has mode 0644`, func(l *lab) {
		name := filepath.Join(l.t.TempDir(), "firstseen.yaml")
		require.NoError(l.t, os.WriteFile(name, []byte("kafka: {sasl: {password: hunter2}}"), 0o644))
		l.target = func(p *target) { p.ConfigFile = name }
	}}},
	"config.http": {
		configured(Warning, `0.0.0.0:8080 without TLS: the token`,
			func(c *config.Config) { c.HTTP.Listen, c.HTTP.ReadToken = "0.0.0.0:8080", "x" }),
		configured(Info, `without TLS or token`, func(c *config.Config) { c.HTTP.Listen = ":8080" }),
	},
	"config.kafka_tls": {
		configured(Warning, `TLS is off and `+faraway,
			func(c *config.Config) { c.Kafka.Brokers = config.List{faraway} }),
		configured(Warning, `insecure_skip_verify`, func(c *config.Config) { c.Kafka.TLS.InsecureSkipVerify = true }),
	},
	"config.sasl": {configured(Warning, `plain without TLS`, func(c *config.Config) {
		c.Kafka.Brokers, c.Kafka.SASL.Mechanism = config.List{faraway}, "plain"
	})},
	"config.postgres_tls": {
		configured(Warning, `may be unencrypted`,
			func(c *config.Config) { c.Postgres.DSN = "postgres://db.example/app?sslmode=prefer" }),
		configured(Info, `is not verified`,
			func(c *config.Config) { c.Postgres.DSN = "postgres://db.example/app?sslmode=require" }),
	},
	"config.webhooks": {configured(Warning, `webhook pay is called by http`, func(c *config.Config) {
		c.Topics = []config.Topic{{Name: topic,
			Handlers: []config.Handler{{Name: "pay", Webhook: config.Webhook{URL: "http://pay.example"}}}}}
	})},
}

var serverTroubles = map[string][]trouble{
	"postgres.reachable": {configured(Fault, `connection refused`,
		func(c *config.Config) { c.Postgres.DSN = "postgres://127.0.0.1:1/app" })},
	"postgres.version": {
		{Fault, `firstseen needs 14`, func(l *lab) { l.target = func(p *target) { p.major = 13 } }},
		{Info, `this build was tested with`, func(l *lab) { l.target = func(p *target) { p.major = 19 } }},
	},
	"postgres.standby": {{Fault, `is a standby`, func(l *lab) {
		scratch, err := child.NewScratch("standby", child.Unprivileged())
		require.NoError(l.t, err)
		l.t.Cleanup(scratch.Remove)
		dir := scratch.Path("data")
		s := deduptest.StartServer(l.t, pgserver.Config{Dir: dir})
		require.NoError(l.t, s.Close())
		require.NoError(l.t, os.WriteFile(filepath.Join(dir, "standby.signal"), nil, 0o644))
		s = deduptest.StartServer(l.t, pgserver.Config{Dir: dir})
		l.also(func(c *config.Config) { c.Postgres.DSN = config.Secret(s.DSN("postgres")) })
	}}},
	"postgres.encoding": {{Fault, `encoding is LATIN1, and firstseen needs UTF8`, func(l *lab) {
		l.sql(`create database latin encoding 'LATIN1' locale 'C' template template0`)
		l.heal(func() { l.sql(`drop database latin with (force)`) })
		dsn := l.db.DSN + "&dbname=latin"
		l.also(func(c *config.Config) { c.Postgres.DSN = config.Secret(dsn) })
	}}},
	"postgres.collation": {{Warning, `made with version 1.0 of its collation, which is unknown now`, func(l *lab) {
		l.sql(`update pg_database set datcollversion = '1.0' where datname = current_database()`)
		l.heal(func() { l.sql(`update pg_database set datcollversion = null where datname = current_database()`) })
	}}},
	"postgres.clock": {{Warning, `clock is 59m\S+ ahead of`, func(l *lab) {
		l.target = func(p *target) { p.now = func() time.Time { return time.Now().Add(-time.Hour + 10*time.Second) } }
	}}, {Warning, `clock is 1h\S+ behind`, func(l *lab) {
		l.target = func(p *target) { p.now = func() time.Time { return time.Now().Add(time.Hour) } }
	}}},
	"postgres.connections": {
		configured(Fault, `the server allows 197 connections, and each process wants up to 1000`,
			func(c *config.Config) { c.Postgres.MaxConnections = 1000 }),
		configured(Warning, `of the 197 connections of the server are taken`,
			func(c *config.Config) { c.Postgres.MaxConnections = 197 }),
		{Fault, `the role allows 5 connections`, func(l *lab) {
			l.sql(`create role few login connection limit 5`)
			l.heal(func() { l.sql(`drop role few`) })
			l.loginAs("few")
		}},
	},
	"postgres.pooler": {
		{Fault, `loses prepared statements, and postgres.prepared_statements is true`, (*lab).bouncer},
		{Warning, `loses prepared statements`, func(l *lab) { l.bouncer(); l.noConfig = true }},
		{Info, `the config copes`, func(l *lab) {
			l.bouncer()
			l.also(func(c *config.Config) { c.Postgres.PreparedStatements = false })
		}},
	},
}

// waitForALock has a consumer wait for a lock that somebody keeps.
func (l *lab) waitForALock() {
	session := func(name string) *pgx.Conn {
		conf, err := pgx.ParseConfig(l.db.DSN)
		require.NoError(l.t, err)
		conf.RuntimeParams["application_name"] = name
		conn, err := pgx.ConnectConfig(l.t.Context(), conf)
		require.NoError(l.t, err)
		return conn
	}
	holder, waiter, done := session("by hand"), session("firstseen shop"), make(chan struct{})
	_, err := holder.Exec(l.t.Context(), `begin; lock table firstseen.pauses`)
	require.NoError(l.t, err)
	go func() {
		defer close(done)
		_, _ = waiter.Exec(context.Background(), `select from firstseen.pauses`)
	}()
	l.heal(func() {
		_ = holder.Close(context.Background())
		<-done
		_ = waiter.Close(context.Background())
	})
	require.Eventually(l.t, func() bool {
		var waits int
		return l.db.Pool.QueryRow(l.t.Context(), `select count(*) from pg_locks where not granted`).
			Scan(&waits) == nil && waits > 0
	}, 3*time.Minute, 10*time.Millisecond)
}

// asConsumer has the config log in as a role, and the doctor as the superuser.
func (l *lab) asConsumer(role string) {
	l.also(func(c *config.Config) { c.Postgres.DSN = config.Secret(l.dsnOf(role)) })
	l.target = func(p *target) { p.DSN = l.db.DSN }
}

// dsnOf names the database, as a role.
func (l *lab) dsnOf(role string) string {
	return deduptest.As(l.t, l.db.DSN, role)
}

func (l *lab) loginAs(role string) {
	dsn := l.dsnOf(role)
	l.also(func(c *config.Config) { c.Postgres.DSN = config.Secret(dsn) })
}

func (l *lab) bouncer() {
	b := deduptest.PgBouncer(l.t, l.db.DSN, "default_pool_size = 3")
	l.also(func(c *config.Config) { c.Postgres.DSN = config.Secret(b.DSN) })
}

func roleSetting(level Level, seen, setting, value string) trouble {
	return trouble{level, seen, func(l *lab) {
		l.sql(fmt.Sprintf(`alter role postgres set %s = '%s'`, setting, value))
		l.heal(func() { l.sql(`alter role postgres reset ` + setting) })
	}}
}

// table is a trouble that one statement makes and another mends.
func table(level Level, seen, broken, mended string) trouble {
	return trouble{level, seen, func(l *lab) {
		l.sql(broken)
		l.heal(func() { l.sql(mended) })
	}}
}

func (tr trouble) under(change func(*limits)) trouble {
	return trouble{tr.level, tr.seen, func(l *lab) { l.limits = change; tr.make(l) }}
}

var settingTroubles = map[string][]trouble{
	"settings.isolation": {
		roleSetting(Info, `is serializable for the role postgres`, "default_transaction_isolation", "serializable"),
		table(Info, `is repeatable read for the role payments`,
			`create role payments login in role firstseen_consumer; alter role payments set default_transaction_isolation = 'repeatable read'`, `drop role payments`),
	},
	"settings.read_only": {{Fault, `is on for the role postgres`, func(l *lab) {
		l.sql(`alter role postgres set default_transaction_read_only = on`)
		l.heal(func() {
			l.sql(`begin read write; alter role postgres reset default_transaction_read_only; commit`)
		})
	}}},
	"settings.durability": {{Fault, `fsync is off`, func(l *lab) {
		s := deduptest.StartServer(l.t, pgserver.Config{Settings: map[string]string{"fsync": "off"}})
		l.also(func(c *config.Config) { c.Postgres.DSN = config.Secret(s.DSN("postgres")) })
	}}},
	"settings.synchronous_commit": {roleSetting(Warning, `is off for the role postgres`, "synchronous_commit", "off")},
	"settings.timeouts": {
		roleSetting(Warning,
			`idle_in_transaction_session_timeout is 1m0s for the role postgres, and a handler may take 5m0s`,
			"idle_in_transaction_session_timeout", "1min"),
		roleSetting(Warning, `statement_timeout is 250ms`, "statement_timeout", "250ms"),
		roleSetting(Warning, `transaction_timeout is 4m0s for the role postgres, and a handler may take 5m0s`,
			"transaction_timeout", "4min"),
		roleSetting(Warning, `transaction_timeout is 5m0s for the role postgres, and a handler may take 6m0s`,
			"transaction_timeout", "5min").with(func(c *config.Config) { c.Timeouts.Handler = 6 * time.Minute }),
		roleSetting(Info, `lock_timeout is 2s`, "lock_timeout", "2s"),
	},
	"settings.plans": {
		roleSetting(Fault, `session_replication_role is replica`, "session_replication_role", "replica"),
		roleSetting(Info, `plan_cache_mode is force_custom_plan`, "plan_cache_mode", "force_custom_plan"),
	},
	"settings.autovacuum": {
		table(Warning, `off for the table lanes`, `alter table firstseen.lanes set (autovacuum_enabled = false)`,
			`alter table firstseen.lanes reset (autovacuum_enabled)`),
	},
	"sessions.transactions": {trouble{Warning, `session \d+ of postgres \("(.*)"\) has had a transaction open for \S+; it is idle in transaction`, func(l *lab) {
		conn, err := pgx.Connect(l.t.Context(), l.db.DSN)
		require.NoError(l.t, err)
		_, err = conn.Exec(l.t.Context(), `begin; select 1`)
		require.NoError(l.t, err)
		l.heal(func() { _ = conn.Close(context.Background()) })
	}}.under(func(m *limits) { m.openTransaction = 0 })},
	"sessions.locks": {trouble{Warning,
		`session \d+ \("firstseen shop"\) has waited for \S+ for a lock of session \d+ of postgres \("by hand"\), which is idle in transaction`,
		(*lab).waitForALock}.under(func(m *limits) { m.lockWait = 0 })},
	"sessions.prepared": {table(Warning, `"left" of postgres was prepared \S+ ago`,
		`begin; select pg_current_xact_id(); prepare transaction 'left'`,
		`rollback prepared 'left'`).under(func(m *limits) { m.prepared = 0 })},
	"sessions.slots": {table(Warning, `slot gone is unused and holds`,
		`select pg_create_physical_replication_slot('gone', true)`,
		`select pg_drop_replication_slot('gone')`).under(func(m *limits) { m.slotBytes = -1 })},
	"vacuum.freeze": {
		{Fault, `million back`, func(l *lab) { l.limits = func(m *limits) { m.frozenAge = 10 } }},
		{Warning, `autovacuum should have frozen it at 200000000`,
			func(l *lab) { l.limits = func(m *limits) { m.frozenShare = 1e-9 } }},
	},
	"vacuum.dead_rows": {trouble{Warning, `parked has \d+ dead rows beside`, func(l *lab) {
		l.sql(`alter table firstseen.parked set (autovacuum_enabled = false)`)
		l.alone(`insert into firstseen.parked ("offset", scope_id, lane, message_id, topic)
			select n, 0, md5(n::text)::uuid, md5(n::text)::uuid, 'x' from generate_series(1, 500) n;
			delete from firstseen.parked where scope_id = 0`)
		l.heal(func() {
			l.sql(`vacuum firstseen.parked`)
			l.sql(`alter table firstseen.parked reset (autovacuum_enabled)`)
		})
	}}.under(func(m *limits) { m.deadRows = 100 })},
	"vacuum.index": {trouble{Warning, `times what a new one would`, func(l *lab) {
		l.sql(`insert into firstseen.message_dedup (scope_id, message_id) select 0, gen_random_uuid() from generate_series(1, 20000)`)
		l.sql(`delete from firstseen.message_dedup where scope_id = 0`)
		l.sql(`vacuum analyze firstseen.message_dedup`)
		l.heal(func() { l.sql(`reindex index firstseen.message_dedup_pkey`) })
	}}.under(func(m *limits) { m.indexRows = 10 })},
}

// holdSQL has a process tell of a hold; parameters of format are how long ago, the code, and how long it has waited.
const holdSQL = `insert into firstseen.holds values ('shop', gen_random_uuid(), 'host 1', now() - interval '%s', jsonb_build_array(
	jsonb_build_object('kind', 'partition', 'name', 'orders/3', 'code', '%s', 'since', now() - interval '%s', 'reason', 'gone', 'tries', 1)))`

func hold(level Level, seen, told, code, since string) trouble {
	return table(level, seen, fmt.Sprintf(holdSQL, told, code, since), `truncate firstseen.holds`)
}

var runningTroubles = map[string][]trouble{
	"holds.waiting": {
		hold(Fault, `partition orders/3 has waited for 1h0m\ds in host 1: the partition's log is not the one that was read: .* \(cut_off\): gone`,
			"1 second", "cut_off", "1 hour"),
		hold(Warning, `has waited for 1h0m\ds in host 1: calls fail .* \(receiver_away\)`,
			"1 second", "receiver_away", "1 hour"),
		hold(Info, `has waited for \d\S* in host 1: Postgres does not answer`, "1 second", "postgres", "3 seconds"),
		hold(Warning, `host 1 of shop has not told since \S+ \S+ \S+ what it waits for, 1 holds then`,
			"10 minutes", "cut_off", "1 hour"),
	},
	"handlers.functions": {
		table(Fault, `handler book of topic orders: function book: there is none of that name`,
			`drop function book`, createBook),
		table(Fault, `handler book of topic orders: function book: found public.book\(m text\); want one argument of type firstseen.message`,
			`drop function book; create function book(m text) returns void language sql as ''`,
			`drop function book; `+createBook),
		{Fault, `handler book of topic orders: function book: found public.book.*, which this role may not execute`,
			func(l *lab) {
				l.sql(`create role payments login; revoke execute on function book from public`)
				l.heal(func() { l.sql(`drop role payments; grant execute on function book to public`) })
				l.also(func(c *config.Config) { c.Postgres.DSN = config.Secret(l.dsnOf("payments")) })
				l.target = func(p *target) { p.DSN = l.db.DSN } // whoever asks
			}},
	},
	"handlers.webhooks": {configured(Warning, `handler hook: reach 127.0.0.1:1: .*refused`, func(c *config.Config) {
		hook := config.Handler{Name: "hook", Webhook: config.Webhook{URL: "http://127.0.0.1:1/x", AllowPrivate: true}}
		c.Topics[0].Handlers = append(c.Topics[0].Handlers[:1:1], hook)
	})},
}

// deadSQL makes dead letters; parameters of format are the reason, died_at and published_at, and how many.
const deadSQL = `insert into firstseen.dead_letters (scope_id, message_id, topic, reason, died_at, published_at)
	select {scope}, md5('dead' || n)::uuid, 'orders', '%s', now() - interval '%s', %s from generate_series(1, %d) n`

func dead(level Level, seen, reason, ago, published string, n int) trouble {
	return table(level, seen, fmt.Sprintf(deadSQL, reason, ago, published, n), `truncate firstseen.dead_letters`)
}

func (tr trouble) with(change func(*config.Config)) trouble {
	return trouble{tr.level, tr.seen, func(l *lab) { l.also(change); tr.make(l) }}
}

func toDeadTopic(c *config.Config) { c.DeadLetterTopic = "dead" }

// messagesSQL adds messages of the same content under IDs of their own.
const messagesSQL = `insert into firstseen.inbox (scope_id, message_id, topic, payload, seq)
	select {scope}, md5('again' || n)::uuid, 'orders', 'the same order of the same customer', -n from generate_series(1, %d) n`

const (
	forgetAgain = `delete from firstseen.inbox where seq < 0`
	dropKey     = `alter table firstseen.message_dedup drop constraint message_dedup_pkey`
	addKey      = `alter table firstseen.message_dedup add constraint message_dedup_pkey primary key (scope_id, message_id)`
	oldScope    = `insert into firstseen.scopes (inbox, handler, tenant, created_at) values ('%s', '%s', '', now() - interval '30 days')`
	noOldScope  = `delete from firstseen.scopes where created_at < now() - interval '1 day'`
)

const pauseSQL = `insert into firstseen.pauses (inbox, kind, name, at, actor, why) values ('shop', '%s', '%s', now() - interval '%s', 'eve', 'ledger is away')`

const clashSQL = `insert into firstseen.conflicts ("offset", scope_id, "partition", message_id, topic, fingerprint)
	select n, {scope}, 0, md5('1')::uuid, 'orders', '' from generate_series(1, %d) n`

var storedTroubles = map[string][]trouble{
	"schema.version": {
		table(Fault, `is at version 999 and this build needs`,
			`insert into firstseen.schema_version (version_id, is_applied) values (999, true)`,
			`delete from firstseen.schema_version where version_id = 999`),
		configured(Fault, `schema firstseen is not there`, func(c *config.Config) {}).on("template1"),
	},
	"schema.id_key": {
		table(Fault, `no primary key message_dedup_pkey of`, dropKey, addKey),
		table(Fault, `no primary key message_dedup_pkey of`, dropKey+
			`; alter table firstseen.message_dedup add constraint message_dedup_pkey primary key (message_id, scope_id)`,
			dropKey+"; "+addKey),
		table(Fault, `is not there`, `alter table firstseen.message_dedup rename to gone`,
			`alter table firstseen.gone rename to message_dedup`),
		table(Fault, `is not valid`,
			`update pg_index set indisvalid = false where indexrelid = 'firstseen.message_dedup_pkey'::regclass`,
			`update pg_index set indisvalid = true where indexrelid = 'firstseen.message_dedup_pkey'::regclass`),
		table(Fault, `is unlogged`, `alter table firstseen.message_dedup set unlogged`,
			`alter table firstseen.message_dedup set logged`),
	},
	"schema.functions": {
		table(Fault, `accept runs under \(search_path=firstseen, pg_temp\) instead of \(plan_cache_mode=force_generic_plan; search_path`,
			`alter function firstseen.accept reset plan_cache_mode`,
			`alter function firstseen.accept reset all; alter function firstseen.accept set search_path = firstseen, pg_temp; alter function firstseen.accept set plan_cache_mode = force_generic_plan`),
		table(Fault, `discard runs with other rights`, `alter function firstseen.discard security invoker`,
			`alter function firstseen.discard security definer`),
		table(Fault, `seal is not there`, `alter function firstseen.seal rename to unseal`,
			`alter function firstseen.unseal rename to seal`),
		table(Fault, `seal has another body`,
			`create table kept as select prosrc from pg_proc where proname = 'seal'; update pg_proc set prosrc = 'begin end' where proname = 'seal'`,
			`update pg_proc set prosrc = (select prosrc from kept) where proname = 'seal'; drop table kept`),
	},
	"schema.plan": {table(Fault, `not looked up through message_dedup_pkey: `, dropKey, addKey)},
	"schema.triggers": {
		table(Fault, `positions_sealed of the table positions is disabled`,
			`alter table firstseen.positions disable trigger positions_sealed`,
			`alter table firstseen.positions enable trigger positions_sealed`),
		table(Fault, `unsealed_sealed of the table unsealed is not there`,
			`alter trigger unsealed_sealed on firstseen.unsealed rename to x`,
			`alter trigger x on firstseen.unsealed rename to unsealed_sealed`),
	},
	"schema.rights": {
		table(Warning, `role firstseen_consumer may delete`,
			`grant delete on firstseen.message_dedup to firstseen_consumer`,
			`revoke delete on firstseen.message_dedup from firstseen_consumer`),
		table(Warning, `role twofold may delete`,
			`create role twofold login in role firstseen_owner, firstseen_consumer`, `drop role twofold`),
		table(Warning, `role public may truncate`, `grant truncate on firstseen.message_dedup to public`,
			`revoke truncate on firstseen.message_dedup from public`),
		table(Info, `not there: firstseen_operator;`, `alter role firstseen_operator rename to x`,
			`alter role x rename to firstseen_operator`),
		table(Info, `not there: firstseen_retention;`, `alter role firstseen_retention rename to x`,
			`alter role x rename to firstseen_retention`),
		table(Info, `of the five roles these are not there: firstseen_sender;`,
			`alter role firstseen_sender rename to x`, `alter role x rename to firstseen_sender`),
	},
	"schema.login": {
		{Fault, `the role payments lacks: select on pauses`, func(l *lab) {
			l.sql(`create role payments login in role firstseen_consumer; revoke select on firstseen.pauses from firstseen_consumer`)
			l.heal(func() { l.sql(`grant select on firstseen.pauses to firstseen_consumer; drop role payments`) })
			l.asConsumer("payments")
		}},
		{Fault, `the role payments is not there`, func(l *lab) {
			dsn := strings.Replace(l.db.DSN, "postgres://postgres", "postgres://payments", 1)
			l.also(func(c *config.Config) { c.Postgres.DSN = config.Secret(dsn) })
			l.target = func(p *target) { p.DSN = l.db.DSN }
		}},
	},
	"inbox.partitions": {table(Warning, `there is no partition for \d{4}`,
		`do $$ begin execute 'drop table firstseen.inbox_' || to_char(now() at time zone 'UTC' + interval '1 day', 'YYYYMMDD'); end $$`,
		`select firstseen.make_partitions(7)`)},
	"inbox.partition_names": {
		table(Warning, `inbox_20990101 is FOR VALUES FROM \('2099-01-02`,
			`set timezone = 'UTC'; create table firstseen.inbox_20990101 partition of firstseen.inbox for values from ('2099-01-02') to ('2099-01-03')`,
			`drop table firstseen.inbox_20990101`),
		table(Warning, `old is not named for a day`,
			`create table firstseen.old partition of firstseen.inbox for values from ('1999-01-02') to ('1999-01-03')`,
			`drop table firstseen.old`),
	},
	"inbox.default": {table(Warning, `1 messages are in inbox_default`,
		`insert into firstseen.inbox (received_at, scope_id, message_id, topic) values ('2001-01-01', {scope}, gen_random_uuid(), 'x')`,
		`delete from firstseen.inbox_default`)},
	"inbox.clocks": {table(Warning, `3 of the newest 303 messages have a timestamp that is no time`,
		`insert into firstseen.inbox (scope_id, message_id, topic, produced_at, raw_timestamp, seq) values ({scope}, gen_random_uuid(), 'x', null, 1764300000000000000, -1),
			({scope}, gen_random_uuid(), 'x', 'infinity', null, -2), ({scope}, gen_random_uuid(), 'x', '57878-01-01', null, -3)`, forgetAgain),
		table(Info, `1 of the newest 301 messages were produced after they were received, by up to \S+`,
			`insert into firstseen.inbox (scope_id, message_id, topic, produced_at, seq) values ({scope}, gen_random_uuid(), 'x', now() + interval '1 hour', -1)`, forgetAgain)},
	"inbox.pauses": {
		table(Warning, `handler book has been paused for 48h0m0s by eve: ledger is away`,
			fmt.Sprintf(pauseSQL, "handler", "book", "2 days"), `truncate firstseen.pauses`),
		table(Info, `topic orders has been paused for 2\S+ by eve`,
			fmt.Sprintf(pauseSQL, "topic", "orders", "2 minutes"), `truncate firstseen.pauses`),
	},
	"inbox.renamed": {
		table(Warning, `handler book is new since \S+, and the handler booking, known since`,
			fmt.Sprintf(oldScope, inbox, "booking"), noOldScope),
		table(Warning, `inbox shop has had the handler book since \S+, and the inbox store,`,
			fmt.Sprintf(oldScope, "store", handler), noOldScope),
	},

	"ids.empty": {
		table(Fault, uuid.Nil.String()+` was taken for an ID by the handler book`,
			`insert into firstseen.message_dedup values ({scope}, '`+uuid.Nil.String()+`')`,
			`delete from firstseen.message_dedup where message_id = '`+uuid.Nil.String()+`'`),
		table(Fault, uuid.Max.String(), `insert into firstseen.message_dedup values ({scope}, '`+uuid.Max.String()+
			`')`, `delete from firstseen.message_dedup where message_id = '`+uuid.Max.String()+`'`),
	},
	"ids.missing": {
		dead(Warning, `20 of 320 messages since .* \(missing_id 20\)`, "missing_id", "0", "null", 20),
		dead(Info, `1 of 301 messages since .* \(payload_not_json 1\)`, "payload_not_json", "0", "null", 1),
	},
	"ids.shared": {
		table(Warning, `5 copies with another content came under the ID c4ca4238-`, fmt.Sprintf(clashSQL, 5),
			`truncate firstseen.conflicts`),
		table(Info, `1 copies came under a known ID with another content, 1 of them within a day`,
			fmt.Sprintf(clashSQL, 1), `truncate firstseen.conflicts`),
	},
	"ids.deterministic": {
		table(Warning, `99 of 400 of the newest`, fmt.Sprintf(messagesSQL, 100), forgetAgain),
		table(Info, `19 of 320 of the newest`, fmt.Sprintf(messagesSQL, 20), forgetAgain),
	},

	"lanes.overdue": {table(Warning, `1 lanes have been due for more than 10m0s, the first since`,
		`insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic)
			select scope_id, gen_random_uuid(), now() - interval '1 hour', inbox, handler, 'x' from firstseen.scopes where scope_id = {scope}`, `truncate firstseen.lanes`)},
	"lanes.deadly": {table(Warning, `1 lanes were taken by workers that died, up to 7 times`,
		`insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic, claims)
			select scope_id, gen_random_uuid(), now(), inbox, handler, 'x', 7 from firstseen.scopes where scope_id = {scope}`, `truncate firstseen.lanes`)},
	"lanes.parked": {table(Warning, `handler book: 1 messages are parked, the oldest for 48h0m`,
		`insert into firstseen.parked ("offset", scope_id, lane, message_id, topic, parked_at) values (1, {scope}, gen_random_uuid(), gen_random_uuid(), 'x', now() - interval '2 days')`,
		`truncate firstseen.parked`)},
	"lanes.unavailable": {table(Warning,
		`handler book: 1 messages wait for something that it needs, the first for 1h0m`,
		`insert into firstseen.parked ("offset", scope_id, lane, message_id, topic, parked_at, reason, error) values (1, {scope}, gen_random_uuid(), gen_random_uuid(), 'x', now() - interval '1 hour', 'unavailable', 'no right')`,
		`truncate firstseen.parked`)},
	"lanes.fruitless": {table(Warning,
		`orders/1 was acquired 5 times and has not moved from 10 since; its last owner: me`,
		`update firstseen.positions set fruitless = 5, owner = 'me' where "partition" = 1`,
		`update firstseen.positions set fruitless = 0, owner = null`)},
	"dead.waiting": {
		dead(Warning, `some have waited for more than 168h`, "permanent", "8 days", "null", 1),
		dead(Warning, `handler book: 1000 dead letters wait`, "permanent", "0", "null", 1000),
		dead(Info, `handler book: 1 dead letters wait`, "permanent", "0", "null", 1),
	},
	"dead.jobs": {table(Warning, `, a discard of ann's in inbox shop, stands since .*, with 7 done`,
		`insert into firstseen.jobs (job_id, inbox, kind, moment, fixed_at, expected, expected_more, actor, why, created_at, worked_at, done)
			values (gen_random_uuid(), 'shop', 'discard', pg_current_snapshot(), now(), 9, false, 'ann', 'spam', now() - interval '2 hours',
				now() - interval '1 hour', 7)`, `delete from firstseen.jobs`),
		table(Warning, `, a replay of ann's in inbox shop, was stopped at .*, with 7 done: messages are gone`,
			`insert into firstseen.jobs (job_id, inbox, kind, state, moment, fixed_at, expected, expected_more, actor, why, worked_at, done, error)
			values (gen_random_uuid(), 'shop', 'replay', 'paused', pg_current_snapshot(), now(), 9, false, 'ann', 'lost', now(), 7,
				'messages are gone')`, `delete from firstseen.jobs`)},
	"dead.unpublished": {
		dead(Warning, `2 dead letters are not in dead yet`, "permanent", "1 hour", "null", 2).with(toDeadTopic),
		dead(Info, `2 dead letters were refused by the broker`,
			"permanent", "1 hour", "'infinity'", 2).with(toDeadTopic),
	},
}

func (tr trouble) on(database string) trouble {
	return trouble{tr.level, tr.seen, func(l *lab) {
		tr.make(l)
		u, err := url.Parse(l.db.DSN)
		require.NoError(l.t, err)
		u.Path = database
		l.also(func(c *config.Config) { c.Postgres.DSN = config.Secret(u.String()) })
	}}
}

func TestAConfigWithASecretInItIsTold(t *testing.T) {
	for text, want := range map[string]bool{
		"postgres: {dsn: 'postgres://app:hunter2@db/app'}":      true,
		"postgres:\n  dsn: postgres://app:${PASSWORD}@db/app\n": false,
		"postgres: {dsn: postgres://app@db/app}":                false, "  password: hunter2\n": true,
		"  password: ${PASSWORD}\n": false, "  password: ''\n": false,
		"  password_file: /run/secrets/kafka\n": false, "http: {read_token: 0123456789abcdef}": true,
		"# password: hunter2": true,
	} {
		require.Equal(t, want, holdsSecret(text), text)
	}
}

func (l *lab) requireNoOverdueLaneOfWhatIsPaused(t *testing.T) {
	defer l.healthy()
	troubles["lanes.overdue"][0].make(l)
	checks, err := Select([]string{"lanes.overdue"})
	require.NoError(t, err)
	require.Equal(t, Warning, Worst(l.check(&checks[0])))
	for _, pause := range [][2]string{{"handler", handler}, {"topic", "x"}} {
		l.sql(fmt.Sprintf(pauseSQL, pause[0], pause[1], "0"))
		require.Equal(t, OK, Worst(l.check(&checks[0])))
		l.sql(`truncate firstseen.pauses`)
	}
}

func (l *lab) requireHandlersThatCameTogetherAreNotARename(t *testing.T) {
	defer l.healthy()
	l.sql(`insert into firstseen.scopes (inbox, handler, tenant) values ('shop', 'idle', '')`)
	l.heal(func() { l.sql(`delete from firstseen.scopes where handler = 'idle'`) })
	checks, err := Select([]string{"inbox.renamed"})
	require.NoError(t, err)
	require.Equal(t, OK, Worst(l.check(&checks[0])))
}

func TestTimesOfPostgresAreRead(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0ms": 0,
		"250": 250 * time.Millisecond, "250ms": 250 * time.Millisecond, "5min": 5 * time.Minute, "1h": time.Hour,
		"1.5s": 1500 * time.Millisecond, "60000ms": time.Minute} {
		got, ok := parseSetting(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	_, ok := parseSetting("soon")
	require.False(t, ok)
}
