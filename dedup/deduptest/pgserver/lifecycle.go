package pgserver

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// Mode is a way to stop a server, as the manual's chapter "Shutting Down the Server" names them.
type Mode string

const (
	// Fast ends the sessions, rolls their transactions back and writes a checkpoint.
	Fast Mode = "fast"
	// Immediate stops as a crash does: the next start recovers from the write-ahead log.
	Immediate Mode = "immediate"
)

const (
	startLimit = 2 * time.Minute
	stopLimit  = 30 * time.Second
	pollEvery  = 10 * time.Millisecond
)

// Start starts a stopped server again, on its port and data, and waits until it answers. A server that
// runs is left alone.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start(ctx)
}

// Stop stops the server and waits for its end; data and port are kept for Start. A stopped server is left
// alone.
func (s *Server) Stop(mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(mode)
}

// Restart is a Stop and a Start.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(mode); err != nil {
		return err
	}
	return s.start(ctx)
}

// Close stops the server and removes its temporary directory. A directory that Config named stays, and the
// server is stopped in good order for its sake.
func (s *Server) Close() error {
	mode := Fast
	if s.scratch != nil {
		mode = Immediate
	}
	err := s.Stop(mode)
	s.scratch.Remove()
	return err
}

func (s *Server) start(ctx context.Context) error {
	if s.process != nil {
		return nil
	}
	process, err := child.Start(child.Spec{
		Path:        s.binary("postgres"),
		Args:        append([]string{"-D", s.config.Dir, "-p", strconv.Itoa(s.config.Port)}, s.settings()...),
		Env:         s.environment(),
		Dir:         "/",
		LogFile:     s.config.LogFile,
		User:        s.user,
		DeathSignal: syscall.SIGQUIT, // an immediate shutdown, which takes the backends along
	})
	if err != nil {
		return err
	}
	if err := s.awaitAnswer(ctx, process); err != nil {
		process.Stop(syscall.SIGQUIT, stopLimit)
		return fmt.Errorf("start postgres on port %d: %w%s", s.config.Port, err, child.Tail(s.config.LogFile))
	}
	s.process = process
	return nil
}

func (s *Server) stop(mode Mode) error {
	signals := map[Mode]syscall.Signal{Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT}
	sig, known := signals[mode]
	if !known {
		return fmt.Errorf("stop postgres: mode %q is neither fast nor immediate", mode)
	}
	if s.process == nil {
		return nil
	}
	killed := s.process.Stop(sig, stopLimit)
	s.process = nil
	if killed {
		return fmt.Errorf("stop postgres, %s: killed, for it still ran after %s", mode, stopLimit)
	}
	return nil
}

func (s *Server) awaitAnswer(ctx context.Context, process *child.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return process.Await(ctx, pollEvery, s.ping)
}

func (s *Server) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
