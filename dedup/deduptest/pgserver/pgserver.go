// Package pgserver starts a real Postgres from a downloaded bundle: for tests, for faults (stop it, crash
// it, put it back to an earlier state), and for the demo.
//
// In comes a [Config], out comes a [Server] that listens on 127.0.0.1 and ends with this process. Started
// by root, who initdb and postgres refuse, the server runs as an unprivileged user.
package pgserver

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// Superuser is the name of the one role of a fresh server.
const Superuser = "postgres"

// Config says which Postgres to run, and where. The zero value runs the newest version, on a free port, with
// data that is gone after [Server.Close].
type Config struct {
	// Version is the major version, "14" to "18". Default "18".
	Version string
	// Dir is the data directory, which is kept; one that has a cluster already is started as it is. Its
	// name with ".log" added is the default of LogFile. Default a temporary directory.
	Dir string
	// InMemory has the temporary directory be in memory, where there is enough.
	InMemory bool
	// Port to listen on, at 127.0.0.1 only. Default a free one.
	Port int
	// Password of the superuser, asked for by scram-sha-256: whoever else is on the machine stays out. Default a
	// random one, which is kept in the data directory.
	Password string
	// Settings are the server's configuration parameters. They win over the defaults, which trade safety
	// at a power failure for speed: fsync and full_page_writes off, 200 connections. Commits stay
	// synchronous, for what they wrote has to outlive an Immediate stop.
	Settings map[string]string
	// Env is added to the server's environment, each as name=value.
	Env []string
	// LogFile gets the server's log. Default beside the data.
	LogFile string
}

// Server is one Postgres, with its data directory and port for as long as it is not closed. Its methods
// are safe for concurrent use.
type Server struct {
	config   Config
	user     *child.User
	binaries string
	scratch  *child.Scratch // nil where the caller named the directory

	mu      sync.Mutex
	process *child.Process // nil while stopped
}

// Start makes the data directory where there is none, starts the server, and waits until it answers.
// The first start of a version on a machine downloads it. Close the server when done.
func Start(ctx context.Context, config Config) (*Server, error) {
	s := &Server{config: config, user: child.Unprivileged()}
	if err := s.prepare(); err != nil {
		s.scratch.Remove()
		return nil, fmt.Errorf("prepare postgres: %w", err)
	}
	if err := s.Start(ctx); err != nil {
		s.scratch.Remove()
		return nil, err
	}
	return s, nil
}

// DSN names a database of the server, as the superuser.
func (s *Server) DSN(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(Superuser, s.config.Password),
		Host:     child.Loopback(s.config.Port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	if s.config.Password == "" {
		u.User = url.User(Superuser)
	}
	return u.String()
}

// Port is the port that the server listens on, the same after each start.
func (s *Server) Port() int { return s.config.Port }

// Dir is the data directory.
func (s *Server) Dir() string { return s.config.Dir }

// LogFile is the path of the server's log.
func (s *Server) LogFile() string { return s.config.LogFile }

func (s *Server) prepare() (err error) {
	if s.binaries, err = binaries(s.config.Version); err != nil {
		return err
	}
	if s.config.Port == 0 {
		if s.config.Port, err = child.FreePort(); err != nil {
			return err
		}
	}
	if err := s.chooseDir(); err != nil {
		return err
	}
	if s.config.LogFile == "" {
		s.config.LogFile = s.config.Dir + ".log"
	}
	return s.initdb()
}

func (s *Server) newScratch() (*child.Scratch, error) {
	if s.config.InMemory {
		return child.NewMemoryScratch("postgres", s.user)
	}
	return child.NewScratch("postgres", s.user)
}

func (s *Server) chooseDir() (err error) {
	if s.config.Dir == "" {
		if s.scratch, err = s.newScratch(); err != nil {
			return err
		}
		s.config.Dir = s.scratch.Path("data")
	}
	if s.config.Dir, err = filepath.Abs(s.config.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.config.Dir, 0o700); err != nil {
		return err
	}
	if err := s.user.CanEnter(s.config.Dir); err != nil {
		return err
	}
	return s.user.Own(s.config.Dir)
}

// settings are the command line's parameters, in one order so that two starts are the same.
func (s *Server) settings() []string {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"fsync":                   "off",
		"full_page_writes":        "off",
		"max_connections":         "200",
	}
	maps.Copy(all, s.config.Settings)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}
