package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// reasons are why survivors need no test, by name.
type reasons map[string]string

// readKnown reads the list: a survivor's name on a line, its reason on the indented lines behind.
func readKnown(file string) (reasons, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	known, name := reasons{}, ""
	for line := range strings.Lines(string(text)) {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "", strings.HasPrefix(line, "#"):
		case line[0] != ' ' && line[0] != '\t':
			name = trimmed
			known[name] = ""
		default:
			known[name] = strings.TrimSpace(known[name] + " " + trimmed)
		}
	}
	for name, reason := range known {
		if reason == "" {
			return nil, fmt.Errorf("%s: no reason for %s", file, name)
		}
	}
	return known, nil
}

// tell prints the survivors that have no reason, and the reasons whose change was killed, and returns how many the
// former are.
func (r reasons) tell(path string, tried []change, survivors []string) (unknown int) {
	for _, name := range survivors {
		if r[name] == "" {
			fmt.Println("SURVIVED", name)
			unknown++
		}
	}
	for _, c := range tried {
		if r[c.name] != "" && !slices.Contains(survivors, c.name) {
			fmt.Printf("%s: a test notices what needs none by its reason: %s\n", path, c.name)
		}
	}
	return unknown
}

// results are what came of a target's changes, in a file below bin/mutants that lasts as long as the target stays the
// same.
type results struct {
	file string
	of   map[string]string
}

func openResults(path string) (*results, error) {
	r := &results{file: filepath.Join("bin", "mutants", strings.ReplaceAll(path, "/", "_")+".txt"),
		of: map[string]string{}}
	sum, err := sumOf(path)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(r.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if first != sum {
		if err := os.MkdirAll(filepath.Dir(r.file), 0o750); err != nil {
			return nil, err
		}
		return r, os.WriteFile(r.file, []byte(sum+"\n"), 0o600)
	}
	for line := range strings.Lines(rest) {
		result, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		r.of[name] = result
	}
	return r, nil
}

func (r *results) add(name, result string) error {
	r.of[name] = result
	file, err := os.OpenFile(r.file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, result, name)
	return errors.Join(err, file.Close())
}

// sumOf is a sum of all files of a target.
func sumOf(path string) (string, error) {
	sum := sha256.New()
	here := os.DirFS(".")
	err := fs.WalkDir(here, filepath.ToSlash(filepath.Clean(path)), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(here, file)
		sum.Write(text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}
