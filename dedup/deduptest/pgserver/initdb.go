package pgserver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

const initdbLimit = 2 * time.Minute

// passwordFile, in a data directory, holds the superuser's password, which its next server needs too.
const passwordFile = "firstseen.password"

// initdb fills an empty data directory. One locale and encoding on every machine: C and UTF-8.
func (s *Server) initdb() error {
	if _, err := os.Stat(filepath.Join(s.config.Dir, "PG_VERSION")); err == nil {
		return s.readPassword()
	}
	if s.config.Password == "" {
		s.config.Password = rand.Text()
	}
	err := s.withPassword(func(file string) error {
		return child.Run(child.Spec{
			Path: s.binary("initdb"),
			Args: []string{
				"--pgdata", s.config.Dir, "--username", Superuser, "--auth", "scram-sha-256", "--pwfile", file,
				"--encoding", "UTF8", "--locale", "C", "--no-sync",
			},
			Env:     s.environment(),
			Dir:     "/",
			LogFile: s.config.LogFile,
			User:    s.user,
		}, initdbLimit)
	})
	if err != nil {
		return fmt.Errorf("initdb in %s: %w", s.config.Dir, err)
	}
	kept := filepath.Join(s.config.Dir, passwordFile)
	if err := os.WriteFile(kept, []byte(s.config.Password), 0o600); err != nil {
		return err
	}
	return s.user.Own(kept)
}

// readPassword learns the password of a cluster that was made before. One without the file may trust everybody.
func (s *Server) readPassword() error {
	if s.config.Password != "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(s.config.Dir, passwordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s.config.Password = string(text)
	return err
}

// withPassword calls do with the name of a file that has the password, while nobody else may read it.
func (s *Server) withPassword(do func(file string) error) error {
	file, err := os.CreateTemp("", "firstseen-pwfile-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(s.config.Password + "\n")
	if err := errors.Join(err, file.Close(), s.user.Own(file.Name())); err != nil {
		return err
	}
	return do(file.Name())
}

func (s *Server) binary(name string) string { return filepath.Join(s.binaries, "bin", name) }

func (s *Server) environment() []string {
	return append([]string{"LC_ALL=C"}, s.config.Env...)
}
