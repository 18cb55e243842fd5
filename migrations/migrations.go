// Package migrations makes firstseen's schema in Postgres. The SQL is plain, numbered and embedded; goose runs
// it under an advisory lock, so that any number of replicas may start on an empty database together.
//
// What enters is a connection string of a role that owns the schema (see [Roles]); what leaves is a schema at
// version [Latest]. Migrations take a session's advisory lock: point them at Postgres itself, not at a pooler
// in transaction mode.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/firstseen/firstseen/migrations/dial"
)

// DefaultSchema is the schema that everything lives in unless another is named.
const DefaultSchema = "firstseen"

// versionTable is goose's table of applied versions, in the same schema.
const versionTable = "schema_version"

// VersionSQL asks for the schema's version, 0 where no step was applied. It is written for the schema firstseen, see
// [Schema.SQL]; where nothing was ever migrated its table is missing.
const VersionSQL = `select coalesce(max(version_id) filter (where is_applied), 0) from firstseen.` + versionTable

//go:embed sql/*.sql
var files embed.FS

// Config says where to migrate. The zero value is the default schema.
type Config struct {
	// Schema is the schema's name: lower-case letters, digits and underscores. It holds nothing else. Default
	// "firstseen".
	Schema string
	// LockTimeout bounds the wait for another replica that is migrating. Default 5 minutes.
	LockTimeout time.Duration
}

// Step is one migration and whether it has been applied.
type Step struct {
	Version   int64
	Name      string
	AppliedAt time.Time // zero: not applied
}

// Latest is the version of the schema that this build of firstseen needs.
func Latest() int64 {
	names, _ := fs.Glob(files, "sql/*.sql")
	return versionOf(names[len(names)-1])
}

func versionOf(file string) int64 {
	version, err := goose.NumericComponent(path.Base(file))
	if err != nil {
		panic("migrations: embedded file without a number: " + file)
	}
	return version
}

// Up brings the schema to the latest version and returns the steps that it took. It is safe to call from many
// processes at once.
func Up(ctx context.Context, dsn string, cfg Config) ([]Step, error) {
	return run(dsn, cfg, func(db *sql.DB, schema string) ([]Step, error) {
		if err := checkEncoding(ctx, db); err != nil {
			return nil, err
		}
		if err := createSchema(ctx, db, schema, cfg.lockTimeout()); err != nil {
			return nil, err
		}
		p, err := newProvider(db, schema, cfg.lockTimeout())
		if err != nil {
			return nil, err
		}
		results, err := p.Up(ctx)
		return taken(results), err
	})
}

// Down takes the schema back to the given version; 0 drops everything, with all message IDs ever seen, but the
// empty schema itself.
func Down(ctx context.Context, dsn string, cfg Config, version int64) ([]Step, error) {
	return run(dsn, cfg, func(db *sql.DB, schema string) ([]Step, error) {
		p, err := newProvider(db, schema, cfg.lockTimeout())
		if err != nil {
			return nil, err
		}
		if there, err := hasVersions(ctx, db, schema); err != nil || !there {
			return nil, err
		}
		results, err := p.DownTo(ctx, version)
		return taken(results), err
	})
}

// Status lists all known steps, with the time at which each was applied. It changes nothing.
func Status(ctx context.Context, dsn string, cfg Config) ([]Step, error) {
	return run(dsn, cfg, func(db *sql.DB, schema string) ([]Step, error) {
		p, err := newProvider(db, schema, cfg.lockTimeout())
		if err != nil {
			return nil, err
		}
		steps := make([]Step, len(p.ListSources()))
		for i, s := range p.ListSources() {
			steps[i] = Step{Version: s.Version, Name: name(s)}
		}
		if there, err := hasVersions(ctx, db, schema); err != nil || !there {
			return steps, err
		}
		states, err := p.Status(ctx)
		for i, s := range states {
			steps[i].AppliedAt = s.AppliedAt
		}
		return steps, err
	})
}

// Version reads the schema's version, which may be newer than [Latest], and changes nothing. It is not there where
// nothing was ever migrated.
func Version(ctx context.Context, dsn string, cfg Config) (version int64, there bool, err error) {
	_, err = run(dsn, cfg, func(db *sql.DB, schema string) (_ []Step, err error) {
		version, there, err = versionIn(ctx, db, schema)
		return nil, err
	})
	return version, there, err
}

func versionIn(ctx context.Context, db rowQuerier, schema string) (version int64, there bool, err error) {
	if there, err = hasVersions(ctx, db, schema); there {
		err = db.QueryRowContext(ctx, Schema(schema).SQL(VersionSQL)).Scan(&version)
	}
	return version, there, err
}

// notOurs are schemas that belong to somebody else.
var notOurs = []string{"public", "information_schema"}

var validSchema = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

func (c Config) schema() (string, error) {
	switch {
	case c.Schema == "":
		return DefaultSchema, nil
	case slices.Contains(notOurs, c.Schema):
		return "", fmt.Errorf("schema %q: firstseen needs a schema of its own", c.Schema)
	case !validSchema.MatchString(c.Schema), strings.HasPrefix(c.Schema, "pg_"):
		return "", fmt.Errorf("schema %q: use 1 to 63 lower-case letters, digits and underscores, "+
			"not starting with a digit or pg_", c.Schema)
	}
	return c.Schema, nil
}

// ownSchema matches the schema's name where the SQL files use it: before a dot, in a search_path, in quotes.
var ownSchema = regexp.MustCompile(`\bfirstseen([.,; '])`)

func rename(sql, schema string) string {
	return ownSchema.ReplaceAllString(sql, schema+"$1")
}

func inSchema(schema string) fstest.MapFS {
	out := fstest.MapFS{}
	names, _ := fs.Glob(files, "sql/*.sql")
	for _, n := range names {
		text, _ := files.ReadFile(n)
		out[strings.TrimPrefix(n, "sql/")] = &fstest.MapFile{Data: []byte(rename(string(text), schema))}
	}
	return out
}

func run(dsn string, cfg Config, f func(db *sql.DB, schema string) ([]Step, error)) (steps []Step, err error) {
	schema, err := cfg.schema()
	if err != nil {
		return nil, err
	}
	conf, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	dial.Prepare(&conf.Config, 0)
	// No prepared statements: a migration changes what they would remember.
	conf.DefaultQueryExecMode = pgx.QueryExecModeExec
	for setting, value := range session {
		if conf.RuntimeParams[setting] == "" {
			conf.RuntimeParams[setting] = value
		}
	}
	db := stdlib.OpenDB(*conf)
	defer func() { err = errors.Join(err, db.Close()) }()
	if steps, err = f(db, schema); err != nil {
		return steps, fmt.Errorf("migrate schema %q: %w", schema, err)
	}
	return steps, nil
}

// session has the settings that a migration needs whatever the defaults of the database and the role, unless the
// connection string says otherwise. The time zone is that of the version table, whose times have none.
var session = map[string]string{
	"timezone":                      "UTC",
	"statement_timeout":             "0",
	"default_transaction_isolation": "read committed",
}

func (c Config) lockTimeout() time.Duration {
	if c.LockTimeout <= 0 {
		return 5 * time.Minute
	}
	return c.LockTimeout
}

func newProvider(db *sql.DB, schema string, lockTimeout time.Duration) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, db, inSchema(schema),
		goose.WithSessionLocker(locker{lockTimeout}), goose.WithTableName(schema+"."+versionTable))
}

// NeedsEncoding says what is wrong with a database's encoding; nil: nothing. Names, message IDs and errors are texts
// in any script, and one that the encoding lacks would hold a partition for ever.
func NeedsEncoding(encoding string) error {
	if encoding == "UTF8" {
		return nil
	}
	return fmt.Errorf("the database's encoding is %s, and firstseen needs UTF8: "+
		"create another one, create database NAME encoding 'UTF8' template template0", encoding)
}

func checkEncoding(ctx context.Context, db *sql.DB) error {
	var encoding string
	if err := db.QueryRowContext(ctx, `show server_encoding`).Scan(&encoding); err != nil {
		return err
	}
	return NeedsEncoding(encoding)
}

// createSchema serializes itself: "if not exists" alone fails when two sessions run it at once.
func createSchema(ctx context.Context, db *sql.DB, schema string, lockTimeout time.Duration) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := lockOut(ctx, tx, lock.DefaultLockID+1, lockTimeout); err != nil {
		return err
	}
	var exists, reserved bool
	if err := tx.QueryRowContext(ctx, `
		select exists (select from pg_namespace where nspname = $1),
		       exists (select from pg_get_keywords() where word = $1 and catcode in ('R', 'T'))`, schema).
		Scan(&exists, &reserved); err != nil {
		return err
	}
	switch {
	case reserved:
		return errors.New("the schema's name is a reserved word of SQL")
	case exists:
		return nil
	}
	if _, err := tx.ExecContext(ctx, `create schema `+schema); err != nil {
		return fmt.Errorf("create schema: %w", err)
	}
	return tx.Commit()
}

// hasVersions says whether anything was ever migrated: goose makes its table even when it is only asked.
func hasVersions(ctx context.Context, db rowQuerier, schema string) (there bool, err error) {
	err = db.QueryRowContext(ctx, `select to_regclass($1) is not null`, schema+"."+versionTable).Scan(&there)
	return there, err
}

func taken(results []*goose.MigrationResult) []Step {
	steps := make([]Step, 0, len(results))
	for _, r := range results {
		steps = append(steps, Step{Version: r.Source.Version, Name: name(r.Source), AppliedAt: time.Now()})
	}
	return steps
}

func name(s *goose.Source) string {
	return strings.TrimSuffix(s.Path, ".sql")
}
