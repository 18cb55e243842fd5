package child_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

func TestCacheIsFilledOnceForAllThatAskAtOnce(t *testing.T) {
	name := cacheName(t)
	var fills int // the lock guards it
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			dir, err := child.Cache(name, func(dir string) error {
				fills++
				return os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if info, err := os.Stat(filepath.Join(dir, "file")); err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("file: %v, %v", info, err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, fills)
}

func TestBrokenFillIsNotTakenForAWholeOne(t *testing.T) {
	name := cacheName(t)
	broken := errors.New("connection lost")
	_, err := child.Cache(name, func(dir string) error {
		return errors.Join(broken, os.WriteFile(filepath.Join(dir, "half"), nil, 0o600))
	})
	require.ErrorIs(t, err, broken)

	dir, err := child.Cache(name, func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o600)
	})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "whole"))
	require.NoFileExists(t, filepath.Join(dir, "half"))
}

func TestScratchOfAProcessThatIsGoneIsSwept(t *testing.T) {
	t.Setenv("TMPDIR", openDir(t))
	old := time.Now().Add(-time.Hour)
	orphan := filepath.Join(os.TempDir(), "firstseen-scratch-orphan-1")
	require.NoError(t, os.Mkdir(orphan, 0o700))
	require.NoError(t, os.Chtimes(orphan, old, old))
	held, err := child.NewScratch("held", child.Unprivileged())
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(held.Dir, old, old))

	other, err := child.NewScratch("other", nil)
	require.NoError(t, err)

	require.NoDirExists(t, orphan)
	require.DirExists(t, held.Dir)
	held.Remove()
	other.Remove()
	require.NoDirExists(t, held.Dir)
}

// openDir is a directory that every user can enter, which t.TempDir's parent keeps from others.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "child-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// cacheName is one that no other run of the test fills, and is empty again at the test's end.
func cacheName(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("test-%d-%s", os.Getpid(), t.Name())
	t.Cleanup(func() {
		dir, err := child.Cache(name, func(string) error { return nil })
		require.NoError(t, err)
		for _, path := range []string{dir, dir + ".lock", dir + ".part"} {
			require.NoError(t, os.RemoveAll(path))
		}
	})
	return name
}
