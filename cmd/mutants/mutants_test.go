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
		require.NotEqual(t, source, string(c.text))
	}
}

func TestSQLIsBrokenWhereAFunctionWasLastMade(t *testing.T) {
	dir := t.TempDir()
	function := func(body string) string {
		return "create or replace function firstseen.f(a int) returns int language sql as $$\n" + body + "\n$$;\n"
	}
	for file, text := range map[string]string{
		"1.sql": "-- +goose Up\n" + function("select 1 where a > b"),
		"2.sql": "-- +goose Up\n" + function("select 1\nwhere a <> (b)\n  and c -- and not this\norder by d\nlimit 1") +
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
	require.NoError(t, os.WriteFile("f.go", []byte("package f"), 0o600))
	first, err := openResults("f.go")
	require.NoError(t, err)
	require.NoError(t, first.add("a => b", killed))
	again, err := openResults("f.go")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a => b": killed}, again.of)
	require.NoError(t, os.WriteFile("f.go", []byte("package g"), 0o600))
	changed, err := openResults("f.go")
	require.NoError(t, err)
	require.Empty(t, changed.of)
}

func TestEachKnownSurvivorHasAReason(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known")
	require.NoError(t, os.WriteFile(file, []byte("# why\na => b\n\tit is as good,\n\tand as quick\n"), 0o600))
	known, err := readKnown(file)
	require.NoError(t, err)
	require.Equal(t, reasons{"a => b": "it is as good, and as quick"}, known)
	require.Equal(t, 1, known.tell("f.go", nil, []string{"a => b", "c => d"}))
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
