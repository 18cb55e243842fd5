package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// server is a Postgres that tests run on, one test binary at a time.
type server struct {
	postgres *pgserver.Server
	env      []string // added for the next test
}

func startServers(ctx context.Context, n int) (servers []*server, stop func(), err error) {
	stop = func() {
		for _, s := range servers {
			_ = s.postgres.Close()
		}
	}
	for range n {
		postgres, err := pgserver.Start(ctx, pgserver.Config{InMemory: true})
		if err != nil {
			stop()
			return nil, nil, err
		}
		servers = append(servers, &server{postgres: postgres})
	}
	return servers, stop, nil
}

// spread does something with each item, on whatever server is free. After an error no item is begun any more.
func spread[T any](servers []*server, items []T, do func(*server, T) error) error {
	var group errgroup.Group
	var next atomic.Int64
	var failed atomic.Bool
	for _, s := range servers {
		group.Go(func() error {
			for at := next.Add(1) - 1; at < int64(len(items)) && !failed.Load(); at = next.Add(1) - 1 {
				if err := do(s, items[at]); err != nil {
					failed.Store(true)
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// test runs some tests of a binary, in their package's directory, until one fails or a time has passed.
func (s *server) test(ctx context.Context, binary, pkg string, names []string, limit time.Duration, args ...string,
) (out []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	args = append(args, "-test.failfast", "-test.parallel=6", "-test.timeout="+limit.String(),
		"-test.run=^("+strings.Join(names, "|")+")$")
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.WaitDelay = pkg, 5*time.Second
	cmd.Env = append(append(os.Environ(), "FIRSTSEEN_TEST_POSTGRES="+s.postgres.DSN("postgres")), s.env...)
	out, err = cmd.CombinedOutput()
	if err != nil {
		return out, errors.Join(err, s.tidy(context.WithoutCancel(ctx)))
	}
	return out, nil
}

// tidy drops what tests that were ended have left.
func (s *server) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.postgres.DSN("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `select datname from pg_database where datname like 'firstseen%'`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := conn.Exec(ctx, "drop database if exists "+name+" with (force)"); err != nil {
			return err
		}
	}
	return nil
}
