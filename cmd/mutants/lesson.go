package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

type lesson struct {
	Name string
	Took time.Duration
	Runs map[string][]span // statements of the target's package, by file
}

// lessons has the tests of a package, the quickest first, and what changes their results.
type lessons struct {
	Sum        string
	Tests      []lesson
	Statements map[string][]span // of the target's package, by file: what tests run or not
}

// covering gives the tests that run what a change breaks: its statements, or, where it is in none, as a case's
// condition is, its function. What is in no function is taken to be run by all.
func (l *lessons) covering(c *change) (tests []lesson) {
	if c.in == (span{}) {
		return l.Tests
	}
	var inner span
	for _, s := range l.Statements[c.file] {
		if s.has(c.at) && s.From.compare(inner.From) > 0 {
			inner = s
		}
	}
	for _, one := range l.Tests {
		if slices.ContainsFunc(one.Runs[c.file], func(s span) bool {
			return s == inner || inner == (span{}) && c.in.has(s.From)
		}) {
			tests = append(tests, one)
		}
	}
	return tests
}

// learn runs each test alone, but those that it knows with the same code. What of target's package they run is noted
// where that is Go.
func learn(ctx context.Context, ts tests, target string, servers []*server) (*lessons, error) {
	about := packageOf(target)
	code, err := sumOf(isCode, ts.dir(), about)
	if err != nil {
		return nil, err
	}
	file := kept(ts.pkg + " " + about)
	l := &lessons{}
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, l) != nil || l.Sum != code {
		l = &lessons{Sum: code}
	}
	if err := l.learn(ctx, ts, about, servers); err != nil {
		return nil, err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return l, os.WriteFile(file, text, 0o600)
}

func isCode(file string) bool { return !strings.HasSuffix(file, "_test.go") }

func (l *lessons) learn(ctx context.Context, ts tests, about string, servers []*server) error {
	names, err := ts.names()
	if err != nil {
		return err
	}
	l.Tests = slices.DeleteFunc(l.Tests, func(one lesson) bool { return !slices.Contains(names, one.Name) })
	names = slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(l.Tests, func(one lesson) bool { return one.Name == name })
	})
	if len(names) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "test")
	args := []string{"-o", binary, ts.pkg}
	if !isSQL(about) {
		args = append([]string{"-cover", "-covermode=atomic", "-coverpkg=./" + about}, args...)
	}
	if out, err := build(ctx, args...); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", ts.pkg, err, out)
	}
	var mu sync.Mutex
	err = spread(servers, names, func(s *server, name string) error {
		one, statements, err := learnOne(ctx, s, binary, ts.pkg, name)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			fmt.Printf("%s %s is left out: %v\n", ts.pkg, name, err)
		} else {
			l.Tests, l.Statements = append(l.Tests, *one), statements
		}
		return nil
	})
	slices.SortFunc(l.Tests,
		func(a, b lesson) int { return cmp.Or(cmp.Compare(a.Took, b.Took), cmp.Compare(a.Name, b.Name)) })
	return errors.Join(err, ctx.Err())
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func (ts tests) names() (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(ts.pkg, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // of the tree
		if err != nil {
			return nil, err
		}
		for _, found := range testFunc.FindAllSubmatch(text, -1) {
			name := string(found[1])
			if name != "TestMain" && (ts.but == "" || !regexp.MustCompile(ts.but).MatchString(name)) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

func learnOne(ctx context.Context, s *server, binary, pkg, name string,
) (one *lesson, statements map[string][]span, err error) {
	began, profile := time.Now(), binary+"."+name
	out, err := s.test(ctx, binary, pkg, []string{name}, 5*time.Minute, "-test.coverprofile="+profile)
	if err != nil {
		return nil, nil, fmt.Errorf("it fails without any change: %w\n%s", err, last(out))
	}
	one = &lesson{Name: name, Took: time.Since(began)}
	text, err := os.ReadFile(profile) //nolint:gosec // ours
	if err != nil {
		return nil, nil, err
	}
	one.Runs, statements = readProfile(string(text))
	return one, statements, nil
}

// readProfile reads lines of module/dir/file.go:line.column,line.column statements times.
func readProfile(profile string) (runs, all map[string][]span) {
	runs, all = map[string][]span{}, map[string][]span{}
	for line := range strings.Lines(profile) {
		path, rest, _ := strings.Cut(strings.TrimSpace(line), ".go:")
		var s span
		var statements, times int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d",
			&s.From.line, &s.From.column, &s.To.line, &s.To.column, &statements, &times); err != nil {
			continue
		}
		file := strings.TrimPrefix(path, module+"/") + ".go"
		all[file] = append(all[file], s)
		if times > 0 {
			runs[file] = append(runs[file], s)
		}
	}
	return runs, all
}

const module = "github.com/firstseen/firstseen"

func packageOf(target string) string {
	if isSQL(target) {
		return target
	}
	return filepath.ToSlash(filepath.Dir(target))
}

func isSQL(target string) bool { return filepath.Base(target) == "sql" }

func last(out []byte) []byte { return out[max(0, len(out)-3000):] }
