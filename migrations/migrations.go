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
	"regexp"
	"strings"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// DefaultSchema is the schema that everything lives in unless another is named.
const DefaultSchema = "firstseen"

// VersionTable is goose's table of applied versions, in the same schema.
const VersionTable = "schema_version"

//go:embed sql/*.sql
var files embed.FS

//go:embed roles.sql
var roles string

// Config says where to migrate. The zero value is the default schema.
type Config struct {
	// Schema is the schema's name: lower-case letters, digits and underscores. Default "firstseen".
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
	last := strings.TrimPrefix(names[len(names)-1], "sql/")
	version, err := goose.NumericComponent(last)
	if err != nil {
		panic("migrations: embedded file without a number: " + last)
	}
	return version
}

// Up brings the schema to the latest version and returns the steps that it took. It is safe to call from many
// processes at once.
func Up(ctx context.Context, dsn string, cfg Config) ([]Step, error) {
	return run(ctx, dsn, cfg, func(p *goose.Provider) ([]Step, error) {
		results, err := p.Up(ctx)
		return taken(results), err
	})
}

// Down takes the schema back to the given version; 0 drops everything, with all message IDs ever seen.
func Down(ctx context.Context, dsn string, cfg Config, version int64) ([]Step, error) {
	return run(ctx, dsn, cfg, func(p *goose.Provider) ([]Step, error) {
		results, err := p.DownTo(ctx, version)
		return taken(results), err
	})
}

// Status lists all known steps, with the time at which each was applied.
func Status(ctx context.Context, dsn string, cfg Config) ([]Step, error) {
	return run(ctx, dsn, cfg, func(p *goose.Provider) ([]Step, error) {
		states, err := p.Status(ctx)
		steps := make([]Step, len(states))
		for i, s := range states {
			steps[i] = Step{Version: s.Source.Version, Name: name(s.Source), AppliedAt: s.AppliedAt}
		}
		return steps, err
	})
}

// Print gives the SQL of all steps for the configured schema, for those who apply migrations with a tool of
// their own.
func Print(cfg Config) (string, error) {
	schema, err := cfg.schema()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for path, file := range inSchema(schema) {
		fmt.Fprintf(&b, "-- %s\n%s\n", path, file.Data)
	}
	return b.String(), nil
}

// Roles gives the SQL that makes the two roles firstseen needs and grants their rights: an owner, which
// migrates, and a consumer, which can neither change the schema nor forget a message ID. It may be run again
// after every migration.
func Roles(cfg Config) (string, error) {
	schema, err := cfg.schema()
	if err != nil {
		return "", err
	}
	return rename(roles, schema), nil
}

var validSchema = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

func (c Config) schema() (string, error) {
	switch {
	case c.Schema == "":
		return DefaultSchema, nil
	case !validSchema.MatchString(c.Schema) || strings.HasPrefix(c.Schema, "pg_"):
		return "", fmt.Errorf("schema %q: use 1 to 63 lower-case letters, digits and underscores, "+
			"not starting with a digit or pg_", c.Schema)
	}
	return c.Schema, nil
}

// ownSchema matches the schema's name where the SQL files use it: before a dot, and in a search_path.
var ownSchema = regexp.MustCompile(`\bfirstseen([.,; ])`)

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

func run(ctx context.Context, dsn string, cfg Config, f func(*goose.Provider) ([]Step, error)) (steps []Step, err error) {
	schema, err := cfg.schema()
	if err != nil {
		return nil, err
	}
	conf, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	// Simple protocol: a migration changes what prepared statements would remember.
	conf.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*conf)
	defer func() { err = errors.Join(err, db.Close()) }()

	if err := createSchema(ctx, db, schema); err != nil {
		return nil, fmt.Errorf("create schema %s: %w", schema, err)
	}
	provider, err := newProvider(db, schema, cfg.LockTimeout)
	if err != nil {
		return nil, fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	steps, err = f(provider)
	if err != nil {
		return steps, fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	return steps, nil
}

func newProvider(db *sql.DB, schema string, lockTimeout time.Duration) (*goose.Provider, error) {
	if lockTimeout <= 0 {
		lockTimeout = 5 * time.Minute
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, uint64(max(1, lockTimeout/time.Second))))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, inSchema(schema),
		goose.WithSessionLocker(locker), goose.WithTableName(schema+"."+VersionTable))
}

// createSchema serializes itself: "if not exists" alone fails when two sessions run it at once.
func createSchema(ctx context.Context, db *sql.DB, schema string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `select pg_advisory_xact_lock($1)`, lock.DefaultLockID+1); err != nil {
		return err
	}
	var exists bool
	if err := tx.QueryRowContext(ctx,
		`select exists (select from pg_namespace where nspname = $1)`, schema).Scan(&exists); err != nil || exists {
		return err
	}
	if _, err := tx.ExecContext(ctx, `create schema `+pgx.Identifier{schema}.Sanitize()); err != nil {
		return err
	}
	return tx.Commit()
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
