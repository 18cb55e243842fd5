package crashtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/migrations"
)

// stack is what all runs stand on: a Postgres with a database that each run's is a copy of, and a directory for logs.
type stack struct {
	config    *Config
	postgres  *pgserver.Server
	scratch   *child.Scratch
	receivers map[string]string // statements, by webhook
	began     time.Time         // records have times from here on, the same in each run
	failed    bool              // the log is kept
}

const (
	template = "crash_template"
	ourName  = "crashtest" // of our own sessions
	// stepLimit bounds what takes moments.
	stepLimit = 2 * time.Minute
)

func openStack(ctx context.Context, c *Config) (_ *stack, err error) {
	s := &stack{config: c, began: time.Now().Truncate(time.Second)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.scratch, err = child.NewScratch("crashtest", nil); err != nil {
		return nil, err
	}
	s.tell("starting Postgres")
	s.postgres, err = pgserver.Start(ctx, pgserver.Config{Version: c.PostgresVersion, InMemory: true})
	if err != nil {
		return nil, err
	}
	return s, s.makeTemplate(ctx)
}

func (s *stack) makeTemplate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	if err := s.do(ctx, pgserver.Superuser, "create database "+template+" template template0"); err != nil {
		return err
	}
	dsn, own := s.postgres.DSN(template), migrations.Config{Schema: s.config.FirstseenSchema}
	if _, err := migrations.Up(ctx, dsn, own); err != nil {
		return err
	}
	if _, err := migrations.ApplyRoles(ctx, dsn, own); err != nil {
		return err
	}
	if err := s.do(ctx, template, s.config.Schema); err != nil {
		return fmt.Errorf("the schema of the handlers: %w", err)
	}
	return s.findReceivers(ctx)
}

// close ends everything, and says where the log is that was kept.
func (s *stack) close() (err error) {
	if s.postgres != nil {
		err = s.postgres.Close()
	}
	if s.failed {
		kept := s.scratch.Dir + ".log"
		if os.Rename(s.log(), kept) == nil {
			s.tell("the consumers' log is kept: %s", kept)
		}
	}
	s.scratch.Remove()
	return err
}

// log is the file that all consumers write to.
func (s *stack) log() string { return s.scratch.Path("consumer.log") }

// dsn names a database in a session of ours.
func (s *stack) dsn(database string) string {
	return s.postgres.DSN(database) + "&application_name=" + ourName
}

// through names a database by a proxy's address.
func (s *stack) through(database, addr string) (string, error) {
	u, err := url.Parse(s.postgres.DSN(database))
	if err != nil {
		return "", err
	}
	u.Host = addr
	return u.String(), nil
}

// do sends a script, by a connection of its own: those before a crash of Postgres are no good after it.
func (s *stack) do(ctx context.Context, database, script string) error {
	conn, err := pgx.Connect(ctx, s.dsn(database))
	if err != nil {
		return err
	}
	_, err = conn.PgConn().Exec(ctx, script).ReadAll()
	return errors.Join(err, conn.Close(ctx))
}

// newDatabase makes a copy of the template.
func (s *stack) newDatabase(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	err := s.do(ctx, pgserver.Superuser, fmt.Sprintf("create database %s template %s", name, template))
	if err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	return nil
}

// drop removes a database, whoever is connected to it.
func (s *stack) drop(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	_ = s.do(ctx, pgserver.Superuser, fmt.Sprintf("drop database if exists %s with (force)", name)) // or with the server
}
