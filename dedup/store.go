// Package dedup is Postgres' side of firstseen: it decides what is new. A message gets its identity by a rule of
// package identity ([Message.Identify]); a batch of messages enters [Store.Accept], which opens one transaction,
// moves the consumer's position, inserts the message IDs and says which of them were never seen; that transaction,
// with whatever handlers added to it, leaves through [Tx.Commit]. The package knows nothing of brokers.
//
// Seven names are enough to begin with. Whoever runs a consumer opens a [Store] with [Open] and a [Config], over a
// pool that [PreparePool] has prepared; whoever writes handlers gets a [Message] with its [Header] list, and writes
// many at once with [Columns]. The rest is what the packages handlers and consumer are built of. What operators do
// is in package operate.
//
// In reading order: message.go; store.go (opening) with reach.go, rights.go and pool.go; scope.go, position.go and home.go (what
// a batch is accepted into, who owns it, and in which of several databases); batch.go, accept.go, settle.go and commit.go (one transaction from its
// begin to its commit), tx.go (what is done with it in between), errors.go (what it is refused for),
// internal/handlertx and internal/session (what handlers get of it, and leave behind); ordering.go, lanes.go and
// rest.go (what waits), parked.go (how much); look.go (accept without effect), pause.go and holds.go (what is read and
// told by the way); names.go; and how values travel: parameters.go, columns.go, statements.go, array.go, copyrows.go,
// pieces.go, headers.go, uuidcodec.go.
package dedup

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/internal/session"
	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

// OutboxInbox is the name of the inbox that an outbox's messages lie in once a relay of package handlers/outbox has
// taken them, and OutboxRelay whose the positions and holds of its relays are. No group's name begins so.
const (
	OutboxInbox = "outbox"
	OutboxRelay = "relay/" + OutboxInbox
)

// Config says where a Store keeps its memory.
type Config struct {
	// Inbox names the memory of message IDs: two consumers that share an inbox share what they have seen.
	// Required. Renaming it forgets everything.
	Inbox string
	// Schema is the Postgres schema that the migrations made. Default "firstseen".
	Schema string
	// EvictAfter bounds Acquire's wait for a previous owner's open transaction before it ends that transaction.
	// Default 2 seconds.
	EvictAfter time.Duration
	// IdleAfter is the time without a statement, or at one, after which Postgres ends a transaction on lanes, or on
	// messages from no partition: its process is stopped or cut off, and others wait for it. It must be longer than a
	// handler takes. Default 10 minutes.
	IdleAfter time.Duration
	// AnswerTimeout bounds each round trip to Postgres that is no handler's: accept, commit, acquire, what lanes
	// need. A lock that somebody else holds counts as silence. Default 30 seconds.
	AnswerTimeout time.Duration
	// Patience bounds Open's wait for a Postgres that can't be reached, is coming up or takes no writes: it is tried again,
	// which is logged. Default 1 minute; below 0 it is tried once.
	Patience time.Duration
	// Holds has what Open waits for. Default: a registry of its own, which logs to slog.Default().
	Holds *holds.Registry
	// PartitionDays is the number of days ahead for which the inbox's partitions are made. Default 7.
	PartitionDays int
}

func (c *Config) setDefaults() error {
	if c.Schema == "" {
		c.Schema = migrations.DefaultSchema
	}
	if c.EvictAfter <= 0 {
		c.EvictAfter = 2 * time.Second
	}
	c.EvictAfter = max(c.EvictAfter, time.Millisecond) // to Postgres, less is no limit at all
	if c.IdleAfter <= 0 {
		c.IdleAfter = 10 * time.Minute
	}
	if c.AnswerTimeout <= 0 {
		c.AnswerTimeout = dial.Silence
	}
	if c.Patience == 0 {
		c.Patience = time.Minute
	}
	if c.Holds == nil {
		c.Holds = holds.New(nil)
	}
	if c.PartitionDays <= 0 {
		c.PartitionDays = 7
	}
	if err := CheckName(c.Inbox); err != nil {
		return fmt.Errorf("inbox: %w: it is what remembers the message IDs", err)
	}
	return nil
}

// Store is an inbox in a Postgres database. It is safe for concurrent use.
type Store struct {
	db     *db.DB
	cfg    Config
	scopes scopeCache

	sessions session.Sessions
}

// Open checks that the database is in UTF8, that the schema is there at the version this build needs and that the
// login may do what a consumer must, and makes the inbox's partitions for the days ahead. A Postgres that can't be
// reached is waited for, as long as Config.Patience, and ctx, let it; what it refuses, such as a password or a schema of
// another version, is an error at once. The pool stays the caller's, who closes it after the last use of the store. Have [PreparePool] prepare its config: else its
// connections stay with a server that a failover has demoted, and wait for minutes on a network that has fallen
// silent.
//
// Behind a pooler in transaction mode (PgBouncer, pgcat) statements must not be prepared under a name: set
// default_query_exec_mode=cache_describe in the pool's connection string, or exec, which needs a round trip less at
// first but sends parameters as text. PgBouncer 1.21 and later can carry names over (max_prepared_statements), and
// then needs no setting. The store keeps nothing in a session: its locks and settings end with the transaction.
//
// Nor may handlers: each commit is followed, in the same round trip, by statements that put back what they have left
// in the session: settings, the role, temporary tables, session locks, cursors and LISTEN. What the pool's
// AfterConnect sets stays, but for settings that Postgres does not know (app.tenant): give those in the connection
// string or by alter role.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("open inbox: %w", err)
	}
	s := newStore(pool, cfg)
	s.sessions = session.Of(pool)
	if err := cfg.patiently(ctx, s.begin); err != nil {
		return nil, fmt.Errorf("open inbox %s: %w", cfg.Inbox, err)
	}
	return s, nil
}

// begin checks what a consumer needs, and makes partitions.
func (s *Store) begin(ctx context.Context) error {
	for _, check := range []func(context.Context) error{s.checkEncoding, s.checkVersion, s.checkRights} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	_, err := s.MakePartitions(ctx)
	return err
}

func newStore(pool *pgxpool.Pool, cfg Config) *Store {
	return &Store{cfg: cfg, db: &db.DB{Pool: pool, Schema: migrations.Schema(cfg.Schema), Inbox: cfg.Inbox,
		Answer: cfg.AnswerTimeout}}
}

// Attach is Open for a program that looks and repairs and does not consume: it makes no partitions, and needs the
// rights of the role firstseen_operator only.
func Attach(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("attach to inbox: %w", err)
	}
	s := newStore(pool, cfg)
	if err := s.checkVersion(ctx); err != nil {
		return nil, fmt.Errorf("attach to inbox %s: %w", cfg.Inbox, err)
	}
	return s, nil
}

// Sibling is the store of another inbox, in the same schema and over the same pool, for whoever looks and repairs: see
// Attach.
func (s *Store) Sibling(inbox string) *Store {
	cfg := s.cfg
	cfg.Inbox = inbox
	return newStore(s.db.Pool, cfg)
}

const inboxesSQL = `select distinct inbox from firstseen.scopes order by inbox`

// Inboxes lists the inboxes that a schema (empty: the default one) has seen a message for.
func Inboxes(ctx context.Context, pool *pgxpool.Pool, schema string) ([]string, error) {
	if schema == "" {
		schema = migrations.DefaultSchema
	}
	s := newStore(pool, Config{Schema: schema, AnswerTimeout: dial.Silence})
	if err := s.checkVersion(ctx); err != nil {
		return nil, fmt.Errorf("list inboxes: %w", err)
	}
	inboxes, err := db.Collect(ctx, s.db, pgx.RowTo[string], inboxesSQL)
	if err != nil {
		return nil, fmt.Errorf("list inboxes: %w", err)
	}
	return inboxes, nil
}

// Inbox is the name that the store was opened with.
func (s *Store) Inbox() string { return s.cfg.Inbox }

// Pool is the pool that the store was opened with.
func (s *Store) Pool() *pgxpool.Pool { return s.db.Pool }

// Config returns the store's config, defaults filled in.
func (s *Store) Config() Config { return s.cfg }

// SchemaError says that the database's schema is not the one this build needs.
type SchemaError struct {
	Schema      string
	Found, Need int64 // Found is 0 where there is no schema at all
}

func (e *SchemaError) Error() string {
	switch {
	case e.Found == 0:
		return fmt.Sprintf("schema %s is not there: run `firstseen migrate up`", e.Schema)
	case e.Found < e.Need:
		return fmt.Sprintf("schema %s is at version %d and this build needs %d: run `firstseen migrate up`",
			e.Schema, e.Found, e.Need)
	}
	return fmt.Sprintf("schema %s is at version %d, newer than the %d that this build knows: "+
		"run a newer build, or `firstseen migrate down`", e.Schema, e.Found, e.Need)
}

func (s *Store) checkEncoding(ctx context.Context) error {
	var encoding string
	err := s.Answered(ctx, 0, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, `select current_setting('server_encoding')`).Scan(&encoding)
	})
	if err != nil {
		return err
	}
	return migrations.NeedsEncoding(encoding)
}

func (s *Store) checkVersion(ctx context.Context) error {
	var found int64
	err := s.Answered(ctx, 0, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, s.db.SQL(migrations.VersionSQL)).Scan(&found)
	})
	if err != nil && !failure.NoTable(err) {
		return fmt.Errorf("read version of schema %s: %w", s.cfg.Schema, db.RightsError(dial.Advise(err)))
	}
	if found != migrations.Latest() {
		return &SchemaError{Schema: s.cfg.Schema, Found: found, Need: migrations.Latest()}
	}
	return nil
}

// Server is the state of the database server, as one connection finds it.
type Server struct {
	// Started is when it was started: it tells one server from another, and a restart from a recovery after a crash
	// of one of its processes, which is none.
	Started time.Time
	// Writable says that a new transaction may write.
	Writable bool
}

// Server asks the server how it is.
func (s *Store) Server(ctx context.Context) (server Server, err error) {
	err = s.Answered(ctx, 0, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, `select pg_postmaster_start_time(),
			not pg_is_in_recovery() and not current_setting('transaction_read_only')::boolean`).
			Scan(&server.Started, &server.Writable)
	})
	if err != nil {
		return Server{}, fmt.Errorf("look at the server: %w", err)
	}
	return server, nil
}

const makePartitionsSQL = `select firstseen.make_partitions($1)`

// MakePartitions makes the inbox's partitions for today and the configured number of days ahead, and returns
// how many it made. Call it at least once a day; a missing partition is no failure, its rows go to the
// default partition until the next call.
func (s *Store) MakePartitions(ctx context.Context) (int, error) {
	var made int
	err := s.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.db.SQL(makePartitionsSQL), s.cfg.PartitionDays).Scan(&made)
	})
	if err != nil {
		return 0, fmt.Errorf("make inbox partitions: %w", err)
	}
	return made, nil
}

// idleAfter is Config.IdleAfter for db.LimitSQL.
func (s *Store) idleAfter() string { return strconv.FormatInt(s.cfg.IdleAfter.Milliseconds(), 10) }
