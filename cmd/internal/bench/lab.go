package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/consumer/consumertest/kafkaserver"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/migrations"
)

// lab holds what all suites measure with: a Postgres with durable settings, a Kafka, and the results.
type lab struct {
	options  Options
	postgres *pgserver.Server
	kafka    *kafkaserver.Cluster // nil until a suite asks for it
	peers    string               // the peers' program; empty where there is none
	suite    string
	results  []Result
	names    atomic.Int64
}

// durable are the settings under which a figure of a database means something. Autovacuum stays on.
var durable = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min", "max_connections": "100",
}

// Postgres' COPY differs twofold from run to run where malloc may choose its thresholds; pinned, it does not.
var mallocPinned = []string{"MALLOC_TRIM_THRESHOLD_=67108864", "MALLOC_TOP_PAD_=67108864",
	"MALLOC_MMAP_THRESHOLD_=67108864"}

func openLab(ctx context.Context, o Options) (*lab, error) {
	l := &lab{options: o}
	var err error
	if l.postgres, err = pgserver.Start(ctx, pgserver.Config{Settings: durable, Env: mallocPinned}); err != nil {
		return nil, err
	}
	if err := l.describe(ctx); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) close() {
	if l.kafka != nil {
		l.kafka.Close()
	}
	if l.peers != "" {
		_ = os.Remove(l.peers)
	}
	_ = l.postgres.Close()
}

// postgresEnded has the server's last words where it does not answer any more: a disk that is full takes it down, and
// who measures saw the end of a connection only.
func (l *lab) postgresEnded(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.postgres.DSN("postgres"))
	if err == nil {
		_ = conn.Close(ctx)
		return ""
	}
	return "; Postgres does not answer any more" + child.Tail(l.postgres.LogFile())
}

func (l *lab) begin(s suite) {
	l.suite = s.name
	l.say("\n%s: %s", s.name, s.about)
}

// say tells people what is going on.
func (l *lab) say(format string, args ...any) {
	_, _ = fmt.Fprintf(l.options.Out, format+"\n", args...)
}

// pick gives the first figure in full, the second where the bench is to be quick.
func (l *lab) pick(full, quick int) int {
	if l.options.Quick {
		return quick
	}
	return full
}

// describe prints the machine and the settings, without which no figure means anything.
func (l *lab) describe(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, l.postgres.DSN("postgres"))
	if err != nil {
		return err
	}
	defer pool.Close()
	var version, settings string
	err = pool.QueryRow(ctx,
		`select current_setting('server_version'), string_agg(name || '=' || current_setting(name), ' ' order by name)
		from pg_settings where name = any($1)`,
		[]string{"fsync", "synchronous_commit", "full_page_writes", "shared_buffers",
			"max_wal_size", "wal_compression", "autovacuum", "checkpoint_timeout"}).Scan(&version, &settings)
	if err != nil {
		return fmt.Errorf("ask postgres for its settings: %w", err)
	}
	l.say("%s", machine())
	l.say("postgres %s: %s", version, settings)
	l.say("kafka %s: one broker, in memory of %s; payloads of %d bytes, %d partitions unless said",
		kafkaserver.Version, kafkaHeap, payloadBytes, partitions)
	return nil
}

const kafkaHeap = "1g"

// brokers gives the addresses of the Kafka, which is started at first use.
func (l *lab) brokers(ctx context.Context) (_ []string, err error) {
	if l.kafka == nil {
		l.kafka, err = kafkaserver.Start(ctx, kafkaserver.Config{Heap: kafkaHeap, Optimize: true})
		if err != nil {
			return nil, err
		}
	}
	return l.kafka.Addrs(), nil
}

// name gives a name that was not given before, for a database, a topic, a group.
func (l *lab) name() string {
	return fmt.Sprintf("%s_%d", strings.ReplaceAll(l.suite, "-", "_"), l.names.Add(1))
}

// database is a migrated database with the peers' tables.
type database struct {
	dsn  string
	pool *pgxpool.Pool
}

// peersTables are written to by peers; all effects go there.
const peersTables = `
create table bench_effects (id uuid, payload bytea);
create table bench_seen (id uuid primary key);
create table bench_keys (key text primary key, fingerprint bytea not null, status int, location text, body bytea,
	created_at timestamptz not null default now());
create table bench_inbox (topic text, "partition" int, "offset" bigint, produced_at timestamptz, key bytea, payload bytea, id uuid)`

// database makes a new one. Close it when done with it.
func (l *lab) database(ctx context.Context) (*database, error) {
	name := l.name()
	if err := l.admin(ctx, `create database `+name); err != nil {
		return nil, err
	}
	d := &database{dsn: l.postgres.DSN(name)}
	if _, err := migrations.Up(ctx, d.dsn, migrations.Config{}); err != nil {
		return nil, err
	}
	var err error
	if d.pool, err = pgxpool.New(ctx, d.dsn); err != nil {
		return nil, err
	}
	_, err = d.pool.Exec(ctx, peersTables)
	return d, err
}

// empty drops what an earlier contender wrote, so that each begins with the same tables.
func (d *database) empty(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, `truncate bench_effects, bench_seen, bench_inbox`)
	return err
}

// forget empties firstseen's tables of messages and the effects.
func (d *database) forget(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, `truncate firstseen.message_dedup, firstseen.inbox, bench_effects`)
	return err
}

// drop closes the database and removes it.
func (l *lab) drop(d *database) {
	name := d.pool.Config().ConnConfig.Database
	d.pool.Close()
	_ = l.admin(context.Background(), `drop database `+name+` with (force)`)
}

func (l *lab) admin(ctx context.Context, sql string) error {
	pool, err := pgxpool.New(ctx, l.postgres.DSN("postgres"))
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, sql)
	if err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// machine says on what the figures were taken.
func machine() string {
	cpu := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(text), "model name"); ok {
			line, _, _ := strings.Cut(after, "\n")
			cpu = strings.TrimSpace(strings.TrimLeft(line, "\t: "))
		}
	}
	return fmt.Sprintf("%d x %s, %s", processors(), cpu, runtime.Version())
}

func processors() int { return runtime.NumCPU() }

// peakMemory is the most that this process has had in memory, in bytes; 0 where the system does not say.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := bytes.Cut(status, []byte("VmHWM:"))
	line, _, _ := strings.Cut(string(after), "\n")
	kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "kB")), 10, 64)
	return kib << 10
}
