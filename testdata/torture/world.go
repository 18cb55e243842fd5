package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest/kafkaserver"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// The topics: orders have three handlers, one of which fails in all ways that there are, and one adds each to the outbox,
// out of which it is sent to the topic sent; wild ones bring what no record should hold, bombs among it.
const (
	orders           = "orders"
	sent             = "sent"
	wild             = "wild"
	ordersPartitions = 6
	wildPartitions   = 2
	group            = "torture"
)

// world is the servers, the members and what the operators of both know.
type world struct {
	o       options
	dir     string
	keep    bool
	pg      *pgserver.Server
	kafka   *kafkaserver.Cluster
	pool    *pgxpool.Pool // past the proxy
	proxy   *proxy        // the members' way to Postgres
	way     *losing       // nil: no packets are lost
	members []*member
	config  string // the commands' config, past the proxy
	level   atomic.Int32

	mu    sync.Mutex
	rerun map[string]int // how often an ID was handled again by intention
}

// ledger has the handler book, whose behaviour is a message's first word. All that ends the transaction or never
// succeeds does so until the world is mended.
const ledger = `
create schema torture;
create table torture.ledger (seq bigint generated always as identity, handler text not null, id text not null, key text, n bigint);
create table torture.mended (at timestamptz);
create function torture.is_mended() returns bool language sql volatile as 'select exists (select from torture.mended)';
create function torture.head(m firstseen.message) returns text[] language sql immutable as $$
	select string_to_array(convert_from(substring(m.payload from 1 for 40), 'UTF8'), ' ') $$;
create function torture.book(m firstseen.message) returns void language plpgsql as $$
declare
	head text[] := torture.head(m);
begin
	case head[1]
	when 'flaky' then if random() < 0.2 then raise 'now and then'; end if;
	when 'slow' then perform pg_sleep(0.2);
	when 'poison' then if not torture.is_mended() then raise 'poison'; end if;
	when 'outage' then if not torture.is_mended() then raise 'no memory for this one' using errcode = '53200'; end if;
	when 'backend' then if not torture.is_mended() then perform pg_terminate_backend(pg_backend_pid()); end if;
	when 'hang' then if not torture.is_mended() then perform pg_sleep(3600); end if;
	else null;
	end case;
	insert into torture.ledger (handler, id, key, n) values ('book', m.raw_id, convert_from(m.key, 'UTF8'), head[2]::bigint);
end $$;
create function torture.echo(batch firstseen.message[]) returns void language plpgsql as $$
declare
	m firstseen.message;
begin
	foreach m in array batch loop
		insert into torture.ledger (handler, id, key, n) values ('echo', m.raw_id, convert_from(m.key, 'UTF8'), (torture.head(m))[2]::bigint);
	end loop;
end $$;
create function torture.send(batch firstseen.message[]) returns void language plpgsql as $$
declare
	m firstseen.message;
begin
	foreach m in array batch loop
		perform firstseen.send('sent', m.payload, convert_from(m.key, 'UTF8'), m.raw_id);
	end loop;
end $$;
create function torture.sent(batch firstseen.message[]) returns void language plpgsql as $$
declare
	m    firstseen.message;
	head text[];
begin
	foreach m in array batch loop
		head := torture.head(m);
		insert into torture.ledger (handler, id, key, n) values ('sent', format('%s-%s-%s', head[1],
			substr(convert_from(m.key, 'UTF8'), 2), head[2]), convert_from(m.key, 'UTF8'), head[2]::bigint);
	end loop;
end $$;
create function torture.wild(batch firstseen.message[]) returns void language sql as $$
	insert into torture.ledger (handler, id) select 'wild', m.raw_id from unnest(batch) m $$;
`

func newWorld(ctx context.Context, o options) (w *world, err error) {
	w = &world{o: o, dir: o.dir, rerun: map[string]int{}}
	if w.dir == "" {
		if w.dir, err = os.MkdirTemp("", "firstseen-torture-"); err != nil {
			return nil, err
		}
	} else if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return nil, err
	}
	if err := w.startLosing(ctx); err != nil {
		w.keep = !errors.Is(err, errNoLoss)
		w.close()
		return nil, err
	}
	return w, nil
}

// startLosing starts the servers in peace, and then has packets be lost if they are to be.
func (w *world) startLosing(ctx context.Context) (err error) {
	if w.o.loss == 0 {
		return w.start(ctx)
	}
	if w.way, err = wayToLose(ctx); err != nil {
		return err
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	slog.Info("packets are lost from now on", "percent", w.o.loss, "by", w.way.name)
	return w.way.lose(ctx, w.o.loss)
}

func (w *world) start(ctx context.Context) (err error) {
	if w.pg, err = pgserver.Start(ctx, pgserver.Config{}); err != nil {
		return err
	}
	if w.kafka, err = kafkaserver.Start(ctx, kafkaserver.Config{Brokers: w.o.brokers, Settings: map[string]string{
		"message.max.bytes": "33554432", "replica.fetch.max.bytes": "33554432"}}); err != nil {
		return err
	}
	if w.proxy, err = newProxy(w.pg.DSN("postgres")); err != nil {
		return err
	}
	if err := w.createTopics(ctx); err != nil {
		return err
	}
	if w.pool, err = pgxpool.New(ctx, w.pg.DSN("postgres")+"&application_name=torture"); err != nil {
		return err
	}
	w.config = w.path("operator.yaml")
	if err := w.configure(w.config, w.pg.DSN("postgres"), ""); err != nil {
		return err
	}
	if out, err := w.command(ctx, "run", "--check"); err != nil {
		return fmt.Errorf("check the config: %w: %s", err, out)
	}
	if out, err := w.command(ctx, "migrate", "up"); err != nil {
		return fmt.Errorf("migrate up: %w: %s", err, out)
	}
	if _, err := w.pool.Exec(ctx, ledger); err != nil {
		return fmt.Errorf("make the ledger: %w", err)
	}
	for i := range w.o.members {
		w.members = append(w.members, newMember(w, i))
	}
	return nil
}

func (w *world) createTopics(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Addrs()...))
	if err != nil {
		return err
	}
	defer client.Close()
	large, late := "33554432", "9223372036854775807"
	settings := map[string]*string{"max.message.bytes": &large, "message.timestamp.after.max.ms": &late}
	for topic, partitions := range map[string]int32{orders: ordersPartitions, sent: ordersPartitions, wild: wildPartitions} {
		if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, -1, settings, topic); err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	return nil
}

// bufferBytes is the members' fetch.buffer.
const bufferBytes = 16 << 20

// configure writes a config, so that nobody reads half of it.
func (w *world) configure(file, dsn, listen string) error {
	level := []string{"info", "warn"}[w.level.Load()%2]
	text := fmt.Sprintf(`
postgres: {dsn: %q}
kafka: {brokers: ["%s"]}
group: %s
batch: {messages: 200}
fetch: {buffer: 16MiB}
max_parked: 20000
timeouts: {session: 15s, rebalance: 20s, heartbeat: 500ms, request: 5s, handler: 5s}
topics:
  - name: %s
    handlers:
      - {name: book, function: torture.book, retry: {base: 50ms, cap: 1s, max_attempts: 12}}
      - {name: echo, function: torture.echo}
      - {name: send, function: torture.send}
  - name: %s
    handlers:
      - {name: sent, function: torture.sent}
  - name: %s
    handlers:
      - {name: wild, function: torture.wild}
outbox:
  destinations:
    - {name: events, topics: [%s], retry: {base: 50ms, cap: 1s}}
log: {level: %s}
http: {listen: %q}
`, dsn, strings.Join(w.kafka.Addrs(), `", "`), group, orders, sent, wild, sent, level, listen)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// commandLimit ends a command that hangs.
const commandLimit = 2 * time.Minute

// command runs one of firstseen's commands as an operator would.
func (w *world) command(ctx context.Context, args ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, w.o.firstseen, append(args, "--config", w.config)...).CombinedOutput()
	return string(out), err
}

func (w *world) close() {
	if w.pool != nil {
		w.pool.Close()
	}
	if w.proxy != nil {
		w.proxy.close()
	}
	if w.kafka != nil {
		w.kafka.Close()
	}
	if w.pg != nil {
		_ = w.pg.Close()
	}
	if w.keep {
		fmt.Fprintln(os.Stderr, "logs and configs:", w.dir)
		return
	}
	_ = os.RemoveAll(w.dir)
}
