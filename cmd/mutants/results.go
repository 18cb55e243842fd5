package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// results has the outcomes of a target's changes. A file below bin/mutants keeps them for as long as the target stays
// the same; who survived is tried again when the tests have changed.
type results struct {
	file  string
	tests string // a sum of them

	mu      sync.Mutex
	settled map[string]string
}

func openResults(g target) (*results, error) {
	sum, err := sumOf(isCode, g.path)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, ts := range g.tests {
		dirs = append(dirs, ts.dir())
	}
	tests, err := sumOf(func(file string) bool { return !isCode(file) }, dirs...)
	if err != nil {
		return nil, err
	}
	r := &results{file: kept(g.path), tests: tests[:16], settled: map[string]string{}}
	text, err := os.ReadFile(r.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if first != sum {
		return r, os.WriteFile(r.file, []byte(sum+"\n"), 0o600)
	}
	for line := range strings.Lines(rest) {
		result, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		result, by, _ := strings.Cut(result, ":")
		delete(r.settled, name)
		if result == killed || result == hung || result == unbuilt || by == r.tests {
			r.settled[name] = result
		}
	}
	return r, nil
}

// of returns the outcome of a change; empty where it is to be tried.
func (r *results) of(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settled[name]
}

func (r *results) add(name, result string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled[name] = result
	file, err := os.OpenFile(r.file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s:%s %s\n", result, r.tests, name)
	return errors.Join(err, file.Close())
}

// tell prints how many changes came to what, and gives those that no test noticed, and those that one did.
func (r *results) tell(path string, changes []change, took time.Duration) (survivors, noticed []string) {
	counts := map[string]int{}
	for _, c := range changes {
		result := r.of(c.name)
		counts[result]++
		switch result {
		case survived, uncovered:
			survivors = append(survivors, c.name)
		case killed, hung:
			noticed = append(noticed, c.name)
		}
	}
	fmt.Printf("%s: of %d changes %d killed, %d hung, %d survived, %d that no test runs, %d unbuilt, "+
		"%d left for another run (%s)\n", path, len(changes), counts[killed], counts[hung], counts[survived],
		counts[uncovered], counts[unbuilt], counts[""], took.Round(time.Second))
	return survivors, noticed
}

var unfit = regexp.MustCompile(`[^\w.]+`)

// kept is a file below bin/mutants.
func kept(name string) string {
	short := unfit.ReplaceAllString(name, "_")
	if len(short) > 100 {
		sum := sha256.Sum256([]byte(name))
		short = short[:80] + hex.EncodeToString(sum[:8])
	}
	return filepath.Join("bin", "mutants", short+".txt")
}

// sumOf is a sum of some files, and of those in some directories.
func sumOf(which func(file string) bool, paths ...string) (string, error) {
	sum := sha256.New()
	here := os.DirFS(".")
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		err := fs.WalkDir(here, filepath.ToSlash(filepath.Clean(path)), func(file string,
			d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !which(file) {
				return err
			}
			text, err := fs.ReadFile(here, file)
			sum.Write(text)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
