//go:build unix

package child

import (
	"errors"
	"os"
	"syscall"
)

// lock takes an exclusive lock on a directory, which the kernel drops when this process ends, and waits
// for it. Closing what it gives unlocks.
func lock(path string) (*os.File, error) {
	return flock(path, syscall.LOCK_EX)
}

// tryLock is lock without the wait: nil where somebody else has the lock.
func tryLock(path string) (*os.File, error) {
	file, err := flock(path, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return file, err
}

func flock(path string, how int) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return file, nil
}
