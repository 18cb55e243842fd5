package pgserver

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// Backup copies the data directory to a directory that does not exist yet. A server that runs is stopped
// for it and started again.
func (s *Server) Backup(ctx context.Context, dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ran := s.process != nil
	if err := s.stop(Fast); err != nil {
		return fmt.Errorf("back up to %s: %w", dir, err)
	}
	if err := copyDir(s.config.Dir, dir); err != nil {
		return fmt.Errorf("back up to %s: %w", dir, err)
	}
	if !ran {
		return nil
	}
	return s.start(ctx)
}

// Restore puts the data back to what a backup holds, as a failover to a replica that lagged does: all later
// commits are gone. The server is running afterwards, on its port.
func (s *Server) Restore(ctx context.Context, dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(Immediate); err != nil {
		return fmt.Errorf("restore from %s: %w", dir, err)
	}
	if err := s.replaceData(dir); err != nil {
		return fmt.Errorf("restore from %s: %w", dir, err)
	}
	return s.start(ctx)
}

// Standby starts another server, which follows this one by streaming replication, from a copy of its data. Close it
// too.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	scratch, err := s.newScratch()
	if err != nil {
		return nil, err
	}
	standby := &Server{user: s.user, scratch: scratch,
		config: Config{Version: s.config.Version, Password: s.config.Password, Dir: scratch.Path("data")}}
	if err = s.Backup(ctx, standby.config.Dir); err == nil {
		err = standby.prepare()
	}
	if err == nil {
		err = standby.Follow(ctx, s)
	}
	if err != nil {
		scratch.Remove()
		return nil, fmt.Errorf("start a standby: %w", err)
	}
	return standby, nil
}

// Follow has the server be a standby of another from now on, which has all that this one has, and starts it again. To
// make it a primary ask it for pg_promote().
func (s *Server) Follow(ctx context.Context, primary *Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(Fast); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.config.Dir, "standby.signal"), nil, 0o600); err != nil {
		return err
	}
	if err := s.user.Own(s.config.Dir); err != nil {
		return err
	}
	settings := maps.Clone(s.config.Settings)
	if settings == nil {
		settings = map[string]string{}
	}
	settings["primary_conninfo"] = primary.DSN("postgres")
	s.config.Settings = settings
	return s.start(ctx)
}

func (s *Server) replaceData(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err != nil {
		return err
	}
	if err := os.RemoveAll(s.config.Dir); err != nil {
		return err
	}
	if err := copyDir(dir, s.config.Dir); err != nil {
		return err
	}
	return s.user.Own(s.config.Dir)
}

// copyDir copies a directory whose files nobody writes; postgres wants one that is closed to others.
func copyDir(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return os.Chmod(to, 0o700)
}
