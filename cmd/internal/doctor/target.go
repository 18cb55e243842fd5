package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

// Case names what to check.
type Case struct {
	// Config is the config of `firstseen run`; nil where there is none. ConfigFile is where it was read from, and
	// ConfigErr what is wrong with it: what it does say is used all the same.
	Config     *config.Config
	ConfigFile string
	ConfigErr  error
	// DSN names the database; empty: there is none to look at.
	DSN string
	// Schema is firstseen's. Default "firstseen".
	Schema string
	// Inbox is the inbox. Default: the only one that there is.
	Inbox string
	// Timeout bounds each check. Default 10 s.
	Timeout time.Duration
}

// limits are from where on something is found. Tests lower those that take time or rows to reach.
type limits struct {
	openTransaction time.Duration // how long a transaction may be open
	lockWait        time.Duration // how long a consumer may wait for a lock
	prepared        time.Duration // how long a prepared transaction may be
	slotBytes       int64         // WAL that an unused replication slot may hold
	frozenShare     float64       // age of the oldest transaction, by autovacuum_freeze_max_age
	frozenAge       int64         // the age at which Postgres is close to refusing writes
	deadRows        int64         // dead rows of a table
	indexRows       int64         // rows from which on an index's size says something
	skew            time.Duration // difference between two clocks
	overdue         time.Duration // how long a lane may be due
	parked          time.Duration // how long a message may be parked
	dead            time.Duration // how long a dead letter may wait
	pause           time.Duration // between two looks at what should move
	renamed         time.Duration // how long a new handler or inbox is new
	unswept         time.Duration // how long an answer to an HTTP request may have been expired
	enqueued        time.Duration // how old messages by HTTP are that are worth a word
	unsent          int64         // messages of a topic that wait in the outbox
	outboxBytes     int64         // size of the outbox from which on it says something
	sample          int           // messages that are looked at
}

var usual = limits{
	openTransaction: 15 * time.Minute, lockWait: 20 * time.Second, prepared: 5 * time.Minute, slotBytes: 1 << 30,
	frozenShare: 1.5, frozenAge: 1_500_000_000,
	deadRows: 100_000, indexRows: 100_000, skew: 2 * time.Second, overdue: 10 * time.Minute, parked: 24 * time.Hour,
	dead: 7 * 24 * time.Hour, pause: 3 * time.Second, renamed: 7 * 24 * time.Hour, unswept: 2 * time.Hour,
	enqueued: 90 * 24 * time.Hour, unsent: 1000, outboxBytes: 256 << 20, sample: 10_000,
}

// target is a case at work: its connections, and what was asked already.
type target struct {
	Case
	limits limits
	now    func() time.Time
	// wait passes the time between two looks.
	wait func(ctx context.Context, d time.Duration) bool
	// major stands for the server's version in tests; 0: it is the server's own.
	major int

	pool    *pgxpool.Pool
	poolErr error // why there is no pool; set once it was tried
	reached bool

	schema    *report // of the schema's version; nil: not looked at
	schemaErr error

	inbox    *operate.Inbox
	inboxErr error
	sent     *operate.Inbox // the outbox's; nil: not opened

	cluster    *cluster.Cluster
	clusterErr error
	settings   *cluster.Settings
	read       []string             // the topics that are read, once they are known
	topics     []cluster.TopicFacts // of these, and of the dead letter topic
}

func newTarget(c Case) *target {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Schema == "" {
		c.Schema = migrations.DefaultSchema
	}
	return &target{Case: c, limits: usual, now: time.Now, wait: wait.Sleep}
}

func (p *target) close() {
	if p.pool != nil {
		p.pool.Close()
	}
	if p.cluster != nil {
		p.cluster.Close()
	}
}

// provide connects to what a check needs. What was refused once is not asked again.
func (p *target) provide(ctx context.Context, n need) error {
	if n&(needsConfig|needsKafka) != 0 && p.Config == nil {
		return errors.New("no config is given")
	}
	if n&(needsPostgres|needsSchema|needsInbox) != 0 {
		if err := p.connect(ctx); err != nil {
			return fmt.Errorf("postgres is not reached, see postgres.reachable")
		}
	}
	if n&(needsSchema|needsInbox) != 0 {
		if err := p.checkSchema(ctx); err != nil {
			return err
		}
	}
	if n&needsInbox != 0 {
		if err := p.attach(ctx); err != nil {
			return err
		}
	}
	if n&needsKafka != 0 {
		if p.withoutKafka() {
			return errNoKafka
		}
		if err := p.join(ctx); err != nil {
			return fmt.Errorf("kafka is not reached, see kafka.reachable")
		}
	}
	return nil
}

// errNoKafka says that there is nothing to look at in Kafka.
var errNoKafka = errors.New("nothing is read from Kafka, and nothing sent to it")

func (p *target) withoutKafka() bool { return len(p.Config.Kafka.Brokers) == 0 }

// connect opens the pool and has the server answer.
func (p *target) connect(ctx context.Context) error {
	if p.reached || p.poolErr != nil {
		return p.poolErr
	}
	p.poolErr = p.open(ctx)
	p.reached = p.poolErr == nil
	return p.poolErr
}

func (p *target) open(ctx context.Context) error {
	if p.DSN == "" {
		return errors.New("no database is given")
	}
	conf, err := pgxpool.ParseConfig(p.DSN)
	if err != nil {
		return errors.New("the connection string can't be read") // the parser's words may quote a password
	}
	dial.Prepare(&conf.ConnConfig.Config, p.Timeout)
	conf.MaxConns = 4
	conf.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // works behind any pooler
	if conf.ConnConfig.RuntimeParams["application_name"] == "" {
		conf.ConnConfig.RuntimeParams["application_name"] = "firstseen doctor"
	}
	if p.pool, err = pgxpool.NewWithConfig(ctx, conf); err != nil {
		return err
	}
	return p.pool.Ping(ctx)
}

// errOtherSchema says that what the schema holds is not what this build knows: what a check would find there means
// nothing, and what it advises would do harm.
var errOtherSchema = errors.New("the schema is not the one that this build needs, see schema.version")

// checkSchema looks at the schema's version.
func (p *target) checkSchema(ctx context.Context) error {
	if p.schema == nil {
		p.schema = &report{}
		if p.schemaErr = schemaVersion(ctx, p, p.schema); p.schemaErr == nil && Worst(p.schema.found) > OK {
			p.schemaErr = errOtherSchema
		}
	}
	return p.schemaErr
}

// attach opens the inbox.
func (p *target) attach(ctx context.Context) error {
	if p.inbox != nil || p.inboxErr != nil {
		return p.inboxErr
	}
	p.inboxErr = func() (err error) {
		if p.Inbox == "" {
			if p.Inbox, err = p.onlyInbox(ctx); err != nil {
				return err
			}
		}
		p.inbox, err = operate.Open(ctx, p.pool, dedup.Config{Inbox: p.Inbox, Schema: p.Schema})
		return err
	}()
	return p.inboxErr
}

func (p *target) onlyInbox(ctx context.Context) (string, error) {
	inboxes, err := dedup.Inboxes(ctx, p.pool, p.Schema)
	if at := slices.Index(inboxes, dedup.OutboxInbox); at >= 0 && len(inboxes) > 1 {
		inboxes = slices.Delete(inboxes, at, at+1)
	}
	switch {
	case err != nil:
		return "", err
	case len(inboxes) == 0:
		return "", fmt.Errorf("schema %s has seen no message yet", p.Schema)
	case len(inboxes) > 1:
		return "", fmt.Errorf("--inbox is required, one of: %s", strings.Join(inboxes, ", "))
	}
	return inboxes[0], nil
}

// join has the cluster answer.
func (p *target) join(ctx context.Context) error {
	if p.settings != nil || p.clusterErr != nil {
		return p.clusterErr
	}
	p.clusterErr = func() error {
		conf, err := p.Config.Consumer(slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err != nil {
			return err
		}
		conf.RequestTimeout = p.Timeout * 8 / 10
		p.cluster, err = cluster.New(cluster.Config{Connection: conf.Connection, Home: conf.Home, Logger: conf.Logger})
		if err != nil {
			return err
		}
		found, err := p.askSettings(ctx, conf.Connection)
		if err == nil {
			p.settings = &found
		}
		return err
	}()
	return p.clusterErr
}

// askSettings asks the cluster, and beside that what keeps this client from it: that is known sooner, and says more.
func (p *target) askSettings(ctx context.Context, by consumer.Connection) (cluster.Settings, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var why error
	var sure bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		if why, sure = by.Unreached(ctx); sure {
			cancel()
		}
	}()
	found, err := p.cluster.Settings(ctx)
	<-done
	if sure || err != nil && why != nil {
		return found, why
	}
	return found, err
}

// look reads in one transaction, in which each statement has the time that ctx leaves.
func (p *target) look(ctx context.Context, do func(pgx.Tx) error) error {
	return p.lookWithout(ctx, nil, do)
}

// lookWithout does so where the planner does without what off names, settings such as enable_seqscan, where it can.
func (p *target) lookWithout(ctx context.Context, off []string, do func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, p.pool, options, func(tx pgx.Tx) error {
		left := p.Timeout
		if deadline, ok := ctx.Deadline(); ok {
			left = time.Until(deadline)
		}
		left = max(left-100*time.Millisecond, time.Millisecond) // the connection outlives the statement
		settings := &pgx.Batch{}
		for _, name := range off {
			settings.Queue(`select set_config($1, 'off', true)`, name)
		}
		settings.Queue(`select set_config('statement_timeout', $1, true), set_config('timezone', 'UTC', true)`,
			strconv.FormatInt(left.Milliseconds(), 10))
		if err := tx.SendBatch(ctx, settings).Close(); err != nil {
			return err
		}
		return do(tx)
	})
}

// inSchema spells a statement, which is written for the schema firstseen, for the case's.
func (p *target) inSchema(sql string) string {
	return migrations.Schema(p.Schema).SQL(sql)
}

// query reads rows into structs, column by column.
func query[T any](ctx context.Context, p *target, sql string, args ...any) ([]T, error) {
	return lookAll(ctx, p, nil, pgx.RowToStructByPos[T], sql, args...)
}

func one[T any](ctx context.Context, p *target, sql string, args ...any) (found T, err error) {
	rows, err := query[T](ctx, p, sql, args...)
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("%d rows instead of one", len(rows))
	}
	if err != nil {
		return found, err
	}
	return rows[0], nil
}

func texts(ctx context.Context, p *target, sql string, args ...any) ([]string, error) {
	return lookAll(ctx, p, nil, pgx.RowTo[string], sql, args...)
}
