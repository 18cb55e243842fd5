// Package dedup is Postgres' side of firstseen: it decides what is new. A message gets its identity by a rule of package
// identity ([Message.Identify]); a batch of messages enters [Store.Accept], which opens one transaction, moves the
// consumer's position, inserts the message IDs and says which of them were never seen; that transaction, with
// whatever handlers added to it, leaves through [Tx.Commit]. The package knows nothing of brokers.
package dedup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

// Config says where a Store keeps its memory.
type Config struct {
	// Inbox names the memory of message IDs: two consumers that share an inbox share what they have seen.
	// Required. Renaming it forgets everything.
	Inbox string
	// Schema is the Postgres schema that the migrations made. Default "firstseen".
	Schema string
	// EvictAfter is how long Acquire waits for a previous owner's open transaction before it ends that
	// transaction. Default 2 seconds.
	EvictAfter time.Duration
	// IdleAfter is how long a transaction on lanes may go without a statement before Postgres ends it: its process is
	// stopped or cut off, and the lanes wait for it. It must be longer than a handler takes. Default 10 minutes.
	IdleAfter time.Duration
	// AnswerTimeout bounds each round trip to Postgres that is no handler's: accept, commit, acquire, what lanes need. A lock
	// that somebody else holds counts as silence. Default 30 seconds.
	AnswerTimeout time.Duration
	// PartitionDays is how many days ahead the inbox's partitions are made. Default 7.
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
	pool   *pgxpool.Pool
	cfg    Config
	sql    statements
	scopes scopeCache

	makesSessions bool // the pool sets something in each connection's session
}

// statements are the store's queries, spelled for its schema.
type statements struct {
	accept, inbox, commit, acquire, join, joinOlder, park, bury, conflicts, claimLanes, loadLanes, releaseLanes, finishLanes, announceAttempt, setApart, uncountAttempt, excuse, recall, unfinished, reposition, begin, leaderEpoch, setLeaderEpoch, known, scopes, partitions, version, checkDeferred string
}

func statementsFor(schema string) statements {
	s := pgx.Identifier{schema}.Sanitize()
	return statements{
		accept: `select outcomes, has_lanes, seq from ` + s + `.accept($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		inbox: `copy ` + s + `.inbox (seq, scope_id, message_id, raw_id, topic, "partition", "offset", produced_at,
			raw_timestamp, key, headers, payload) from stdin binary; `,
		commit:          `select ` + s + `.seal(); commit`,
		checkDeferred:   `select ` + s + `.seal(); set constraints all immediate`,
		join:            `select ` + s + `.join_lanes($1, $2, $3)`,
		joinOlder:       `select ` + s + `.join_older_lanes($1, $2, $3, $4)`,
		park:            `select ` + s + `.park(` + parameters(17) + `)`,
		bury:            `select ` + s + `.bury(` + parameters(15) + `)`,
		conflicts:       `select ` + s + `.record_conflicts(` + parameters(11) + `)`,
		claimLanes:      `select scope_id, tenant, lane, claims, claim from ` + s + `.claim_lanes($1, $2, $3, $4)`,
		loadLanes:       loadLanes(s),
		releaseLanes:    `select ` + s + `.release_lanes($1, $2, $3, $4)`,
		finishLanes:     `select ` + s + `.finish_lanes(` + parameters(11) + `)`,
		announceAttempt: `select * from ` + s + `.announce_attempt(` + parameters(6) + `)`,
		setApart:        `select ` + s + `.set_apart($1, $2)`,
		uncountAttempt:  `select ` + s + `.uncount_attempt($1, $2, $3)`,
		excuse:          `update ` + s + `.positions set fruitless = greatest(fruitless - 1, 0) where position_id = $1 and epoch = $2`,
		recall:          `update ` + s + `.positions set fruitless = $3 where position_id = $1 and epoch = $2`,
		unfinished: `select count(*) from (select from ` + s + `.lanes l join ` + s + `.scopes c using (scope_id)
			join ` + s + `.parked p using (scope_id, lane)
			where l.topic = $1 and l."partition" = $2 and c.inbox = $4 limit $3) u`,
		acquire: `select position_id, epoch, next_offset, topic_id, evicted, fruitless
			from ` + s + `.acquire($1, $2, $3, $4, $5)`,
		reposition:  `select ` + s + `.reposition($1, $2, $3, $4)`,
		begin:       `select ` + s + `.begin_topic($1, $2, $3, $4, $5)`,
		leaderEpoch: `select leader_epoch from ` + s + `.positions where position_id = $1 and leader_epoch_at = next_offset`,
		setLeaderEpoch: `update ` + s + `.positions p set leader_epoch = e.leader_epoch, leader_epoch_at = p.next_offset
			from unnest($3::int[], $4::int[]) e ("partition", leader_epoch)
			where p.consumer = $1 and p.topic = $2 and p."partition" = e."partition"`,
		known:      `select exists (select from ` + s + `.positions where consumer = $1 and topic = $2 and next_offset is not null)`,
		scopes:     `select handler, tenant, scope_id from ` + s + `.resolve_scopes($1, $2, $3)`,
		partitions: `select ` + s + `.make_partitions($1)`,
		version: `select coalesce(max(version_id) filter (where is_applied), 0)
			from ` + s + `.` + migrations.VersionTable,
	}
}

// loadLanes looks for a message's raw timestamp only where it has no other.
func loadLanes(schema string) string {
	number := `(select p.raw_timestamp from ` + schema + `.parked p where m.produced_at is null
		and p.scope_id = m.scope_id and p.lane = m.lane and p."offset" = m."offset" and p.message_id = m.message_id)`
	return `select m.scope_id, m.lane, m.message_id, m.raw_id, m.topic, m."partition", m."offset", ` + numberOf("m.produced_at", number) + `,
		m.attempts, m.parked_at, m.key, m.headers, m.payload
	from ` + schema + `.load_lanes($1, $2, $3, $4, $5) m`
}

// parameters is $1 to $n.
func parameters(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(names, ", ")
}

// Open checks that the database is in UTF8, that the schema is there at the version this build needs and that the login may do what a consumer must,
// and makes the inbox's partitions for the days ahead. The pool stays the caller's, who closes it after the last use of the store.
// Have [PreparePool] prepare its config: else its connections stay with a server that a failover has demoted, and wait for
// minutes on a network that has fallen silent.
//
// Behind a pooler in transaction mode (PgBouncer, pgcat) statements must not be prepared under a name: set
// default_query_exec_mode=cache_describe in the pool's connection string, or exec, which needs a round trip less at
// first but sends parameters as text. PgBouncer 1.21 and later can carry names over (max_prepared_statements), and
// then needs no setting. The store keeps nothing in a session: its locks and settings end with the transaction.
//
// Nor may handlers: each commit is followed, in the same round trip, by statements that put back what they have left in
// the session: settings, the role, temporary tables, session locks, cursors and LISTEN. What the pool's AfterConnect sets stays,
// but for settings that Postgres does not know (app.tenant): give those in the connection string or by alter role.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("open inbox: %w", err)
	}
	s := &Store{pool: pool, cfg: cfg, sql: statementsFor(cfg.Schema), makesSessions: pool.Config().AfterConnect != nil}
	if err := s.checkEncoding(ctx); err != nil {
		return nil, fmt.Errorf("open inbox %s: %w", cfg.Inbox, err)
	}
	if err := s.checkVersion(ctx); err != nil {
		return nil, fmt.Errorf("open inbox %s: %w", cfg.Inbox, err)
	}
	if err := s.checkRights(ctx); err != nil {
		return nil, fmt.Errorf("open inbox %s: %w", cfg.Inbox, err)
	}
	if _, err := s.MakePartitions(ctx); err != nil {
		return nil, fmt.Errorf("open inbox %s: %w", cfg.Inbox, err)
	}
	return s, nil
}

// Inbox is the name that the store was opened with.
func (s *Store) Inbox() string { return s.cfg.Inbox }

// PoolStat is how the store's pool is used now.
func (s *Store) PoolStat() *pgxpool.Stat { return s.pool.Stat() }

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
	err := answered(ctx, s.cfg.AnswerTimeout, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `select current_setting('server_encoding')`).Scan(&encoding)
	})
	if err != nil {
		return err
	}
	return migrations.NeedsEncoding(encoding)
}

func (s *Store) checkVersion(ctx context.Context) error {
	var found int64
	err := answered(ctx, s.cfg.AnswerTimeout, func(ctx context.Context) error { return s.pool.QueryRow(ctx, s.sql.version).Scan(&found) })
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000") { // undefined_table, invalid_schema_name
		err = nil
	}
	if err != nil {
		return fmt.Errorf("read version of schema %s: %w", s.cfg.Schema, rightsError(err))
	}
	if found != migrations.Latest() {
		return &SchemaError{Schema: s.cfg.Schema, Found: found, Need: migrations.Latest()}
	}
	return nil
}

// Server is what one connection finds out about the database server.
type Server struct {
	// Started is when it was started: it tells one server from another, and a restart from a recovery after a crash of one
	// of its processes, which is none.
	Started time.Time
	// Writable says that a new transaction may write.
	Writable bool
}

// Server asks the server how it is.
func (s *Store) Server(ctx context.Context) (server Server, err error) {
	err = answered(ctx, s.cfg.AnswerTimeout, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `select pg_postmaster_start_time(),
			not pg_is_in_recovery() and not current_setting('transaction_read_only')::boolean`).Scan(&server.Started, &server.Writable)
	})
	if err != nil {
		return Server{}, fmt.Errorf("look at the server: %w", err)
	}
	return server, nil
}

// MakePartitions makes the inbox's partitions for today and the configured number of days ahead, and returns
// how many it made. Call it at least once a day; a missing partition is no failure, its rows go to the
// default partition until the next call.
func (s *Store) MakePartitions(ctx context.Context) (int, error) {
	var made int
	err := s.inLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.sql.partitions, s.cfg.PartitionDays).Scan(&made)
	})
	if err != nil {
		return 0, fmt.Errorf("make inbox partitions: %w", err)
	}
	return made, nil
}

// pinned is what every transaction of the store is, whatever the defaults of the database and the role are. That it may
// write is not among it: default_transaction_read_only is a brake that is pulled on purpose, on a full disk say.
var pinned = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// inTx does something in a transaction that is short: within the time limit for an answer.
func (s *Store) inTx(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	return s.inTxWithin(ctx, s.cfg.AnswerTimeout, f)
}

// longLimit is for what may have much to do, or wait for a batch whose handler takes its time.
const longLimit = 10 * time.Minute

func (s *Store) inLongTx(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	return s.inTxWithin(ctx, longLimit, f)
}

func (s *Store) inTxWithin(ctx context.Context, limit time.Duration, f func(context.Context, pgx.Tx) error) error {
	return answered(ctx, limit, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, pinned, func(tx pgx.Tx) error { return f(ctx, tx) })
	})
}
