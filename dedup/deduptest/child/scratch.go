package child

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const scratchPrefix = "firstseen-scratch-"

// sweepAge keeps sweep from a directory that is made but not locked yet.
const sweepAge = time.Minute

// Scratch is a directory for one server's files. Its owner holds a lock on it, so that a later
// [NewScratch] can tell and remove the directories of processes that were killed.
type Scratch struct {
	Dir  string
	held *os.File
}

// NewScratch makes a directory in the system's temporary one that belongs to the user. The name says
// what it is for.
func NewScratch(name string, user *User) (*Scratch, error) {
	return newScratch(os.TempDir(), name, user)
}

// NewMemoryScratch makes one whose files are in memory, where that is large enough, else as NewScratch does. Thousands
// of small files that come and go, as with a database for each test, take most of a file system's time on a disk.
func NewMemoryScratch(name string, user *User) (*Scratch, error) {
	dir := memoryDir()
	if dir == "" {
		dir = os.TempDir()
	}
	return newScratch(dir, name, user)
}

func newScratch(parent, name string, user *User) (*Scratch, error) {
	sweep(parent)
	dir, err := os.MkdirTemp(parent, scratchPrefix+name+"-")
	if err != nil {
		return nil, fmt.Errorf("scratch directory for %s: %w", name, err)
	}
	s := &Scratch{Dir: dir}
	if err := s.claim(user); err != nil {
		s.Remove()
		return nil, fmt.Errorf("scratch directory for %s: %w", name, err)
	}
	return s, nil
}

func (s *Scratch) claim(user *User) (err error) {
	if s.held, err = lock(s.Dir); err != nil {
		return err
	}
	if err := user.CanEnter(s.Dir); err != nil { // which has mode 0700, and will be the user's
		return err
	}
	return user.Own(s.Dir)
}

// Path is the path of a file in the directory.
func (s *Scratch) Path(name string) string { return filepath.Join(s.Dir, name) }

// Remove removes the directory, with nobody at work in it any more. A nil Scratch has nothing to remove.
func (s *Scratch) Remove() {
	if s == nil {
		return
	}
	_ = os.RemoveAll(s.Dir)
	if s.held != nil {
		_ = s.held.Close()
	}
}

// sweep removes the scratch directories whose owner is gone.
func sweep(parent string) {
	dirs, err := filepath.Glob(filepath.Join(parent, scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		if held, err := tryLock(dir); err == nil && held != nil {
			_ = os.RemoveAll(dir)
			_ = held.Close()
		}
	}
}
