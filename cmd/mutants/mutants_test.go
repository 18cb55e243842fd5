package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func names(changes []change) (names []string) {
	for _, c := range changes {
		names = append(names, c.name)
	}
	return names
}

func TestGoIsBrokenInSmallWays(t *testing.T) {
	const source = `package p

const q = ` + "`select a from b where c = 1 and d <= 2 for update`" + `

func f(a, b int) (err error) {
	defer done()
	if a <= b && ok() {
		return err
	}
	return nil
}
`
	changes, err := goChanges("p.go", []byte(source))
	require.NoError(t, err)
	require.Equal(t, []string{
		"p.go : const q = `select a from b where c = 1 and d <= 2 for update` => const q = `select a from b where c = 1`",
		"p.go : const q = `select a from b where c = 1 and d <= 2 for update` => const q = `select a from b where c = 1 and d < 2 for update`",
		"p.go : const q = `select a from b where c = 1 and d <= 2 for update` => const q = `select a from b where c = 1 and d <= 2 `",
		"p.go f: defer done() =>",
		"p.go f: if a <= b && ok() { => if a <= b || ok() {",
		"p.go f: if a <= b && ok() { => if a < b && ok() {",
		"p.go f: return err => return nil",
	}, names(changes))
	for _, c := range changes {
		require.NotEqual(t, source, string(c.broken))
	}
}

func TestSQLIsBrokenWhereAFunctionWasLastMade(t *testing.T) {
	dir := t.TempDir()
	function := func(body string) string {
		return "create or replace function firstseen.f(a int) returns int language sql as $$\n" + body + "\n$$;\n"
	}
	for file, text := range map[string]string{
		"1.sql": "-- +goose Up\n" + function("select 1 where a > b"),
		"2.sql": "-- +goose Up\n" +
			function("select 1\nwhere a <> (b)\n  and c -- and not this\norder by d\nlimit 1") +
			"-- +goose Down\n" + function("select 1 where a > b"),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	changes, err := sqlFunctions(dir)
	require.NoError(t, err)
	var short []string
	for _, name := range names(changes) {
		short = append(short, strings.TrimPrefix(name, filepath.Join(dir, "2.sql")+" f: "))
	}
	require.Equal(t, []string{"where a <> (b) => where a = (b)", "and c -- and not this =>", "order by d =>"}, short)
}

func TestResultsOutliveARunWhileTheTargetStaysTheSame(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("bin/mutants", 0o700))
	require.NoError(t, os.WriteFile("f.go", []byte("package f"), 0o600))
	g := target{"f.go", []tests{{pkg: "."}}}
	first, err := openResults(g)
	require.NoError(t, err)
	require.NoError(t, first.add("a => b", killed))
	again, err := openResults(g)
	require.NoError(t, err)
	require.Equal(t, killed, again.of("a => b"))
	require.NoError(t, os.WriteFile("f.go", []byte("package g"), 0o600))
	changed, err := openResults(g)
	require.NoError(t, err)
	require.Empty(t, changed.of("a => b"))
}

func TestEachKnownSurvivorHasAReason(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known")
	require.NoError(t, os.WriteFile(file, []byte("# why\na => b\n\tit is as good,\n\tand as quick\n"), 0o600))
	known, err := readKnown(file)
	require.NoError(t, err)
	require.Equal(t, reasons{"a => b": "it is as good, and as quick"}, known)
	require.Equal(t, []string{"c => d"}, known.unknown([]string{"a => b", "c => d"}))
	require.Equal(t, []string{"a => b"}, known.needless([]string{"a => b", "c => d"}))
	require.NoError(t, os.WriteFile(file, []byte("a => b\n"), 0o600))
	_, err = readKnown(file)
	require.ErrorContains(t, err, "no reason for a => b")
	_, err = readKnown("../../testdata/mutants.txt")
	require.NoError(t, err)
}

func TestTargetsAreThere(t *testing.T) {
	t.Chdir("../..")
	for _, g := range targets {
		changes, err := changesOf(g.path)
		require.NoError(t, err)
		require.NotEmpty(t, changes, g.path)
		seen := map[string]bool{}
		for _, c := range changes {
			require.False(t, seen[c.name], c.name)
			seen[c.name] = true
		}
	}
}

func TestChangesAreBuiltTogetherWhereTheyCanBe(t *testing.T) {
	t.Chdir(t.TempDir())
	const source = `package p

type s struct{ n int }

func (v *s) f(a int, b ...int) int {
	if len(b) > a {
		return v.n + 1
	}
	return a
}

func g(int) bool { return true }

func h(a string) { a += "x" }
`
	require.NoError(t, os.WriteFile("go.mod", []byte("module p\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile("p.go", []byte(source), 0o600))
	changes, err := goChanges("p.go", []byte(source))
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = together(t.Context(), dir, "p.go", changes)
	require.NoError(t, err)
	var numbers []int
	for _, c := range changes {
		numbers = append(numbers, c.number)
	}
	require.Equal(t, []int{1, 2, 3, 0, 4}, numbers, names(changes)) // one has a parameter without a name
	all, err := os.ReadFile(filepath.Join(dir, "p.go"))
	require.NoError(t, err)
	require.Contains(t, string(all),
		"func (v *s) f(a int, b ...int) int { switch mutant { case 1: return v.f_1(a, b...); ")
	require.Contains(t, string(all), "func (v *s) f_3(a int, b ...int) int {\n\tif len(b) > a {\n\t\treturn v.n + 2\n")
}

func TestAChangeMeetsTheTestsThatRunIt(t *testing.T) {
	at := func(from, to int) span { return span{place{from, 1}, place{to, 1}} }
	l := lessons{Statements: map[string][]span{"f.go": {at(1, 20), at(5, 8), at(10, 12)}}, Tests: []lesson{
		{Name: "outer", Runs: map[string][]span{"f.go": {at(1, 20)}}},
		{Name: "inner", Runs: map[string][]span{"f.go": {at(1, 20), at(5, 8)}}},
		{Name: "other"},
	}}
	covering := func(line int) (names []string) {
		for _, one := range l.covering(&change{file: "f.go", at: place{line, 2}, in: at(1, 30)}) {
			names = append(names, one.Name)
		}
		return names
	}
	require.Equal(t, []string{"outer", "inner"}, covering(2))
	require.Equal(t, []string{"inner"}, covering(6))
	require.Empty(t, covering(11), "nothing runs that statement")
	require.Equal(t, []string{"outer", "inner"}, covering(25), "no statement of its own: whoever runs the function")
	require.Len(t, l.covering(&change{file: "f.go", at: place{40, 1}}), 3, "no function: all")
}

func TestACoverProfileIsRead(t *testing.T) {
	runs, all := readProfile("mode: atomic\n" + module + "/a/b.go:3.5,4.2 1 7\n" + module + "/a/b.go:6.1,7.2 2 0\n")
	first, second := span{place{3, 5}, place{4, 2}}, span{place{6, 1}, place{7, 2}}
	require.Equal(t, map[string][]span{"a/b.go": {first}}, runs)
	require.Equal(t, map[string][]span{"a/b.go": {first, second}}, all)
}
