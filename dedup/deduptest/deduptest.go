// Package deduptest gives each test a database of its own on a real Postgres.
//
// The server is started once per test binary, at first use, and ends with it; a package's TestMain calls
// [Main] so that nothing is left on disk either:
//
//	func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }
//
// Two environment variables choose the server. FIRSTSEEN_TEST_POSTGRES is the DSN of a superuser on a
// server that runs already. FIRSTSEEN_TEST_POSTGRES_VERSION, "14" to "18", is the version to start
// otherwise, by default the newest.
package deduptest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// Schema is the schema that a migrated database has its tables in.
const Schema = "firstseen"

// Runner is a *testing.M, or what wraps one.
type Runner interface{ Run() int }

// Main runs the tests and stops the server. It gives the exit code.
func Main(m Runner) int { return Wrap(m).Run() }

// Wrap is Main as a Runner, for a TestMain that has more to do after the tests, like
// goleak.VerifyTestMain(deduptest.Wrap(m)).
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ tests Runner }

func (w wrapped) Run() int {
	code := w.tests.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "deduptest:", err)
	}
	return code
}

// StartServer starts a server for this test alone, to stop, crash or restore. It is closed at the test's
// end.
func StartServer(t testing.TB, config pgserver.Config) *pgserver.Server {
	t.Helper()
	if config.Version == "" {
		config.Version = os.Getenv("FIRSTSEEN_TEST_POSTGRES_VERSION")
	}
	config.InMemory = true
	s, err := pgserver.Start(context.Background(), config)
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	return untilEnd(t, s)
}

// StartStandby starts a standby of a server, closed at the test's end.
func StartStandby(t testing.TB, primary *pgserver.Server) *pgserver.Server {
	t.Helper()
	s, err := primary.Standby(context.Background())
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	return untilEnd(t, s)
}

// untilEnd has a server closed at the test's end.
func untilEnd(t testing.TB, s *pgserver.Server) *pgserver.Server {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("deduptest: %v", err)
		}
	})
	return s
}

// shared is the test binary's one server.
var shared server

type server struct {
	mu        sync.Mutex
	dsn       string           // of the superuser's database; empty before the first use
	started   *pgserver.Server // nil where the environment names a server
	templates []string         // the last is the migrated database that New copies; none before the first New
	day       time.Time        // that the last template has partitions from
	now       func() time.Time // nil: time.Now
}

// get gives the superuser's DSN, and starts the server at the first call.
func (s *server) get() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locked()
}

func (s *server) locked() (string, error) {
	if s.dsn != "" {
		return s.dsn, nil
	}
	if dsn := os.Getenv("FIRSTSEEN_TEST_POSTGRES"); dsn != "" {
		s.dsn = dsn
		return dsn, nil
	}
	version := os.Getenv("FIRSTSEEN_TEST_POSTGRES_VERSION")
	started, err := pgserver.Start(context.Background(), pgserver.Config{Version: version, InMemory: true})
	if err != nil {
		return "", err
	}
	s.started, s.dsn = started, started.DSN("postgres")
	return s.dsn, nil
}

func (s *server) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.started != nil {
		err = s.started.Close()
	}
	for _, name := range s.templates {
		if s.started == nil {
			err = errors.Join(err, dropDatabase(context.Background(), s.dsn, name))
		}
	}
	s.dsn, s.started, s.templates = "", nil, nil
	return err
}
