package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// trial tries changes.
type trial struct {
	end     time.Time // none is begun later
	sample  int
	only    string
	servers []*server
}

func (t *trial) choose(all []change) (chosen []change) {
	var named []change
	for _, c := range all {
		if strings.Contains(c.name, t.only) {
			named = append(named, c)
		}
	}
	if t.sample == 0 || t.sample >= len(named) {
		return named
	}
	for i := range t.sample {
		chosen = append(chosen, named[i*len(named)/t.sample])
	}
	return chosen
}

// What can come of a change.
const (
	killed    = "killed"    // a test failed
	hung      = "hung"      // a test did not end
	survived  = "survived"  // none did
	uncovered = "uncovered" // none runs it
	unbuilt   = "unbuilt"   // it is no Go
)

// target tries changes of a target, but those that an earlier run has settled, and gives the survivors and
// those that a test noticed.
func (t *trial) target(ctx context.Context, g target, changes []change) (survivors, noticed []string, err error) {
	began := time.Now()
	results, err := openResults(g)
	if err != nil {
		return nil, nil, err
	}
	open := slices.DeleteFunc(slices.Clone(changes), func(c change) bool { return results.of(c.name) != "" })
	if len(open) > 0 && time.Now().Before(t.end) {
		if err := t.tryAll(ctx, g, open, results); err != nil {
			return nil, nil, err
		}
	}
	survivors, noticed = results.tell(g.path, changes, time.Since(began))
	return survivors, noticed, nil
}

func (t *trial) tryAll(ctx context.Context, g target, changes []change, results *results) error {
	suite, err := t.prepare(ctx, g, changes)
	if err != nil {
		return err
	}
	defer suite.remove()
	err = spread(t.servers, changes, func(s *server, c change) error {
		if ctx.Err() != nil || !time.Now().Before(t.end) {
			return nil
		}
		result, err := suite.try(ctx, s, &c)
		if err != nil || ctx.Err() != nil {
			return err
		}
		return results.add(c.name, result)
	})
	return errors.Join(err, ctx.Err())
}

// suite is all tests for one target.
type suite struct {
	target  target
	lessons []*lessons
	dir     string
	built   []string // binaries that have changes built in, or read the SQL at run time
}

func (t *trial) prepare(ctx context.Context, g target, changes []change) (*suite, error) {
	s := &suite{target: g}
	for _, ts := range g.tests {
		l, err := learn(ctx, ts, g.path, t.servers)
		if err != nil {
			return nil, err
		}
		s.lessons = append(s.lessons, l)
	}
	var err error
	s.dir, err = os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	if err := s.build(ctx, t.servers[0], changes); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

func (s *suite) remove() { _ = os.RemoveAll(s.dir) }

func (s *suite) build(ctx context.Context, on *server, changes []change) error {
	var overlay string
	var err error
	if isSQL(s.target.path) {
		overlay, err = sqlFromDisk(s.dir)
	} else {
		overlay, err = together(ctx, s.dir, s.target.path, changes)
	}
	if err != nil {
		return err
	}
	for i, ts := range s.target.tests {
		binary := filepath.Join(s.dir, fmt.Sprint("test", i))
		if out, err := build(ctx, "-overlay="+overlay, "-o", binary, ts.pkg); err != nil {
			return fmt.Errorf("build the tests of %s: %w\n%s", ts.pkg, err, out)
		}
		s.built = append(s.built, binary)
		if err := s.unbroken(ctx, on, i); err != nil {
			return err
		}
	}
	return nil
}

// unbroken runs the quick tests with no change on: what was built together is to be as good as the code.
func (s *suite) unbroken(ctx context.Context, on *server, i int) error {
	on.env = []string{sqlDir + "=" + s.dir}
	defer func() { on.env = nil }()
	if isSQL(s.target.path) {
		if err := os.CopyFS(filepath.Join(s.dir, "sql"), os.DirFS(s.target.path)); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	step := s.lessons[i].steps(&change{})[0]
	if out, err := on.test(ctx, s.built[i], s.target.tests[i].pkg, step.names, 2*time.Minute); err != nil {
		return fmt.Errorf("the tests of %s fail without any change: %w\n%s", s.target.tests[i].pkg, err, last(out))
	}
	return nil
}

// try runs the tests that run what a change breaks, until one fails.
func (s *suite) try(ctx context.Context, on *server, c *change) (result string, err error) {
	if c.number < 0 {
		return unbuilt, nil
	}
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if isSQL(s.target.path) {
		if err := writeSQL(dir, c); err != nil {
			return "", err
		}
	}
	on.env = []string{sqlDir + "=" + dir, number + "=" + strconv.Itoa(c.number)}
	defer func() { on.env = nil }()
	result = uncovered
	for i, ts := range s.target.tests {
		steps := s.lessons[i].steps(c)
		if len(steps) == 0 {
			continue
		}
		binary := s.built[i]
		if !isSQL(s.target.path) && c.number == 0 {
			binary = filepath.Join(dir, "test")
			if out, err := buildAlone(ctx, dir, c, binary, ts.pkg); err != nil {
				if bytes.Contains(out, []byte(filepath.Base(c.file))) {
					return unbuilt, nil
				}
				return "", fmt.Errorf("build %s: %w\n%s", c.name, err, out)
			}
		}
		result = survived
		for _, step := range steps {
			if out, err := on.test(ctx, binary, ts.pkg, step.names, step.limit); err == nil {
				continue
			} else if bytes.Contains(out, []byte("panic: test timed out")) || !bytes.Contains(out, []byte("FAIL")) {
				return hung, nil
			}
			return killed, nil
		}
	}
	return result, nil
}

// step is some tests that run at once.
type step struct {
	names []string
	limit time.Duration // after which they are taken to hang
}

// quick bounds the time of the tests of the first step, one after the other.
const quick = 4 * time.Second

// steps are the tests that run what a change breaks: first those that are done soon, then the rest.
func (l *lessons) steps(c *change) []step {
	steps := []step{{limit: 20 * time.Second}, {limit: 40 * time.Second}}
	var all time.Duration
	for _, one := range l.covering(c) {
		s := &steps[1]
		if all += one.Took; all < quick {
			s = &steps[0]
		}
		s.names = append(s.names, one.Name)
		s.limit += 2 * one.Took
	}
	return slices.DeleteFunc(steps, func(s step) bool { return s.names == nil })
}

func build(ctx context.Context, args ...string) (out []byte, err error) {
	return goTool(ctx, append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w"}, args...)...)
}

func goTool(ctx context.Context, args ...string) (out []byte, err error) {
	return exec.CommandContext(ctx, "go", args...).CombinedOutput() //nolint:gosec // ours
}

// buildAlone has the compiler take a broken file instead of the one in the tree.
func buildAlone(ctx context.Context, dir string, c *change, binary, pkg string) (out []byte, err error) {
	broken := filepath.Join(dir, filepath.Base(c.file))
	if err := os.WriteFile(broken, c.broken, 0o600); err != nil {
		return nil, err
	}
	overlay, err := writeOverlay(dir, map[string]string{c.file: broken})
	if err != nil {
		return nil, err
	}
	return build(ctx, "-overlay="+overlay, "-o", binary, pkg)
}

// writeOverlay has the compiler take other files instead of those of the tree.
func writeOverlay(dir string, by map[string]string) (file string, err error) {
	replace := map[string]string{}
	for original, other := range by {
		if original, err = filepath.Abs(original); err != nil {
			return "", err
		}
		replace[original] = other
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}
