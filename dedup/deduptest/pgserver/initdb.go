package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

const initdbLimit = 2 * time.Minute

// initdb fills an empty data directory. One locale and encoding on every machine: C and UTF-8.
func (s *Server) initdb() error {
	if _, err := os.Stat(filepath.Join(s.config.Dir, "PG_VERSION")); err == nil {
		return nil
	}
	args := []string{
		"--pgdata", s.config.Dir, "--username", Superuser,
		"--encoding", "UTF8", "--locale", "C", "--no-sync",
	}
	if s.config.Password == "" {
		args = append(args, "--auth", "trust")
	} else {
		file, err := s.passwordFile()
		if err != nil {
			return fmt.Errorf("initdb in %s: %w", s.config.Dir, err)
		}
		defer os.Remove(file)
		args = append(args, "--auth", "scram-sha-256", "--pwfile", file)
	}
	return child.Run(child.Spec{
		Path:    s.binary("initdb"),
		Args:    args,
		Env:     s.environment(),
		Dir:     "/",
		LogFile: s.config.LogFile,
		User:    s.user,
	}, initdbLimit)
}

func (s *Server) passwordFile() (string, error) {
	file, err := os.CreateTemp("", "firstseen-pwfile-")
	if err != nil {
		return "", err
	}
	defer file.Close()
	if _, err := file.WriteString(s.config.Password + "\n"); err != nil {
		return "", err
	}
	return file.Name(), s.user.Own(file.Name())
}

func (s *Server) binary(name string) string { return filepath.Join(s.binaries, "bin", name) }

func (s *Server) environment() []string {
	return append([]string{"LC_ALL=C"}, s.config.Env...)
}
