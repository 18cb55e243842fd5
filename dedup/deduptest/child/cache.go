package child

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Cache gives the directory of that name in the cache of programs, which fill makes on first use. Fill
// writes into another directory that is renamed when fill is done, so a broken download is never taken
// for a whole one; a lock makes other processes wait for it meanwhile. Everybody may read the result.
func Cache(name string, fill func(dir string) error) (string, error) {
	root, err := cacheRoot()
	if err != nil {
		return "", fmt.Errorf("cache %s: %w", name, err)
	}
	dir := filepath.Join(root, name)
	if err := fillOnce(dir, fill); err != nil {
		return "", fmt.Errorf("cache %s: %w", dir, err)
	}
	return dir, nil
}

// cacheRoot is the user's cache, but for root a place that the unprivileged user can enter.
func cacheRoot() (string, error) {
	root := "/var/cache"
	if os.Getuid() != 0 {
		var err error
		if root, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	root = filepath.Join(root, "firstseen")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	return root, nil
}

func fillOnce(dir string, fill func(dir string) error) error {
	if exists(dir) {
		return nil
	}
	if err := os.MkdirAll(dir+".lock", 0o755); err != nil {
		return err
	}
	held, err := lock(dir + ".lock")
	if err != nil {
		return err
	}
	defer held.Close()
	if exists(dir) {
		return nil
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return err
	}
	if err := fill(part); err != nil {
		return err
	}
	if err := openToAll(part); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

// openToAll lets everybody read what was written under this process' umask.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
