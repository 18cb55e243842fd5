package config

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxFile bounds a config and a secret.
const maxFile = 1 << 20

// sum tells contents apart; zero is a file that can't be read.
type sum [sha256.Size]byte

// read reads a file and remembers what it was, unless it is a pipe or the like, which gives its text once. The text is nil
// only with an error.
func (l *loader) read(name string) ([]byte, error) {
	text, err := readBounded(name)
	if info, errStat := os.Stat(name); errStat != nil || info.Mode().IsRegular() {
		l.files[name] = sumOf(text, err)
	}
	return text, err
}

func sumOf(text []byte, err error) sum {
	if err != nil {
		return sum{}
	}
	return sha256.Sum256(text)
}

func readBounded(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe that nobody writes to is empty, not waited for
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("%s is larger than 1MiB", name)
	}
	return text, nil
}
