package deduptest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

const pgbouncerStop = 10 * time.Second

// Bouncer is a PgBouncer that pools per transaction: two statements of one client may meet two server
// connections unless a transaction holds them together.
type Bouncer struct {
	// DSN is the one that it was started for, with PgBouncer's address.
	DSN string

	t       testing.TB
	spec    child.Spec
	process *child.Process
}

// PgBouncer starts a PgBouncer in front of the DSN's server, which is gone at the test's end. Where the
// program is not installed the test is skipped, or fails if FIRSTSEEN_REQUIRE_PGBOUNCER is set. Settings are further
// lines of its configuration, like "default_pool_size = 2".
func PgBouncer(t testing.TB, dsn string, settings ...string) *Bouncer {
	t.Helper()
	program, user := findPgBouncer(t), child.Unprivileged()
	scratch, err := child.NewScratch("pgbouncer", user)
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	t.Cleanup(scratch.Remove)
	port, err := child.FreePort()
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	b := &Bouncer{t: t, DSN: through(t, dsn, port), spec: child.Spec{
		Path:    program,
		Args:    []string{scratch.Path("pgbouncer.ini")},
		Dir:     scratch.Dir,
		LogFile: scratch.Path("pgbouncer.log"),
		User:    user,
	}}
	if err := configurePgBouncer(scratch, user, dsn, port, settings); err != nil {
		t.Fatalf("deduptest: configure pgbouncer: %v", err)
	}
	b.Start()
	t.Cleanup(b.Stop)
	return b
}

// Start starts a stopped PgBouncer again, at its address.
func (b *Bouncer) Start() {
	b.t.Helper()
	process, err := child.Start(b.spec)
	if err != nil {
		b.t.Fatalf("deduptest: %v", err)
	}
	b.process = process
	if err := b.awaitAnswer(); err != nil {
		b.t.Fatalf("deduptest: start pgbouncer: %v%s", err, child.Tail(b.spec.LogFile))
	}
}

// Stop ends PgBouncer and with it all connections through it.
func (b *Bouncer) Stop() { b.process.Stop(syscall.SIGTERM, pgbouncerStop) }

// Restart is a Stop and a Start.
func (b *Bouncer) Restart() {
	b.t.Helper()
	b.Stop()
	b.Start()
}

func (b *Bouncer) awaitAnswer() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, b.DSN)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-b.process.Done():
			return errors.Join(errors.New("it ended"), b.process.Err())
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Debian's place is not on every user's PATH.
var pgbouncerPaths = []string{"pgbouncer", "/usr/sbin/pgbouncer"}

func findPgBouncer(t testing.TB) string {
	t.Helper()
	for _, name := range pgbouncerPaths {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("FIRSTSEEN_REQUIRE_PGBOUNCER") != "" {
		t.Fatalf("deduptest: FIRSTSEEN_REQUIRE_PGBOUNCER is set and pgbouncer is not installed")
	}
	t.Skipf("pgbouncer is not installed")
	return ""
}

func configurePgBouncer(scratch *child.Scratch, user *child.User, dsn string, port int, settings []string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	users := quoted(config.User) + " " + quoted(config.Password) + "\n"
	if err := os.WriteFile(scratch.Path("users.txt"), []byte(users), 0o600); err != nil {
		return err
	}
	ini := fmt.Sprintf(`[databases]
* = host=%s port=%d

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = transaction
default_pool_size = 20
max_client_conn = 200
%s
`, config.Host, config.Port, port, scratch.Path("users.txt"), strings.Join(settings, "\n"))
	if err := os.WriteFile(scratch.Path("pgbouncer.ini"), []byte(ini), 0o600); err != nil {
		return err
	}
	return user.Own(scratch.Dir)
}

// quoted writes a word of users.txt, where a quote is doubled.
func quoted(word string) string { return `"` + strings.ReplaceAll(word, `"`, `""`) + `"` }

// through is the DSN with another address, at the loopback, and without TLS, which the loopback needs none of.
func through(t testing.TB, dsn string, port int) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("deduptest: %v", err)
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(config.User, config.Password),
		Host:     child.Loopback(port),
		Path:     "/" + config.Database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}
