package deduptest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// limit bounds one step of making or dropping a database, on a machine that is busy with other tests.
const limit = time.Minute

// DB is a migrated database of one test.
type DB struct {
	// DSN names the database, as the superuser.
	DSN string
	// Pool is closed at the test's end.
	Pool *pgxpool.Pool
	// Schema is the one that the tables are in.
	Schema string
}

// NewDatabase gives the DSN of an empty database, which is dropped at the test's end whoever is still
// connected to it.
func NewDatabase(t testing.TB) string {
	t.Helper()
	admin, err := shared.get()
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	return create(t, admin, "template0")
}

// New gives a database with all migrations. They run once per test binary and day, for the inbox has a partition of
// each day from then on; each further database is a copy.
func New(t testing.TB) *DB {
	t.Helper()
	admin, template, err := shared.migrated()
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	dsn := create(t, admin, template)
	return &DB{DSN: dsn, Pool: OpenPool(t, dsn, nil), Schema: Schema}
}

func create(t testing.TB, admin, template string) string {
	t.Helper()
	name := uniqueName("test")
	dsn, err := withDatabase(admin, name)
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	if err := createDatabase(context.Background(), admin, name, template); err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	t.Cleanup(func() {
		if err := dropDatabase(context.Background(), admin, name); err != nil {
			t.Errorf("deduptest: %v", err)
		}
	})
	return dsn
}

// As is the DSN of another role, which is there: it gets the password of the DSN that is given, which is a
// superuser's.
func As(t testing.TB, dsn, role string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	if password, has := u.User.Password(); has {
		set := fmt.Sprintf("alter role %s password '%s'", pgx.Identifier{role}.Sanitize(), password)
		if err := execute(context.Background(), dsn, set); err != nil {
			t.Fatalf("deduptest: set the password of role %s: %v", role, err)
		}
		u.User = url.UserPassword(role, password)
	} else {
		u.User = url.User(role)
	}
	return u.String()
}

// migrated gives the name of the template, and makes it at the first call of a day (UTC). One of the day before is
// kept: it may just be copied.
func (s *server) migrated() (admin, template string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if admin, err = s.locked(); err != nil {
		return "", "", err
	}
	today := s.today()
	if n := len(s.templates); n > 0 && s.day.Equal(today) {
		return admin, s.templates[n-1], nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	name := uniqueName("template")
	if err := makeTemplate(ctx, admin, name); err != nil {
		return "", "", err
	}
	s.templates, s.day = append(s.templates, name), today
	return admin, name, nil
}

func (s *server) today() time.Time {
	now := time.Now
	if s.now != nil {
		now = s.now
	}
	return now().UTC().Truncate(day)
}

func makeTemplate(ctx context.Context, admin, name string) error {
	dsn, err := withDatabase(admin, name)
	if err != nil {
		return err
	}
	if err := createDatabase(ctx, admin, name, "template0"); err != nil {
		return err
	}
	if err := migrate(ctx, dsn); err != nil {
		return errors.Join(fmt.Errorf("migrate the template database: %w", err), dropDatabase(ctx, admin, name))
	}
	return nil
}

func createDatabase(ctx context.Context, admin, name, template string) error {
	err := execute(ctx, admin, fmt.Sprintf("create database %s template %s", name, template))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

func dropDatabase(ctx context.Context, admin, name string) error {
	if err := execute(ctx, admin, fmt.Sprintf("drop database if exists %s with (force)", name)); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func execute(ctx context.Context, dsn, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// uniqueName needs no quotes, and is told apart from those of other binaries on one server.
func uniqueName(kind string) string { return fmt.Sprintf("firstseen_%s_%016x", kind, rand.Uint64()) }

// withDatabase is the DSN, a URL or keywords and values, with another database.
func withDatabase(dsn, name string) (string, error) {
	if _, err := pgx.ParseConfig(dsn); err != nil {
		return "", err
	}
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return dsn + " dbname=" + name, nil // the last of two wins
	}
	u.Path = "/" + name
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = query.Encode()
	return u.String(), nil
}
