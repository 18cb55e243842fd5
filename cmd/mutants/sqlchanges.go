package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sqlRules break SQL, by replacing a match or the one group of it. What they take away has to have its brackets in
// pairs.
var sqlRules = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`(?m)^[ \t]*and [^\n;]*\n`), ""},
	{regexp.MustCompile("\\S( and [^\n;`]*)"), ""},
	{regexp.MustCompile(`\bfor (?:no key update|update|key share|share)(?: of \w+)?(?: skip locked)?`), ""},
	{regexp.MustCompile(` skip locked`), ""},
	{regexp.MustCompile(`\border by [^\n()]*`), ""},
	{regexp.MustCompile(`\bon conflict do nothing`), ""},
	{regexp.MustCompile(`\bdistinct `), ""},
	{regexp.MustCompile(`(?m)^[ \t]*(?:perform|insert|delete|update|raise) [^\n]*;\n`), ""},
	{regexp.MustCompile(`\bnot exists\b`), "exists"},
	{regexp.MustCompile(`\bis null\b`), "is not null"},
	{regexp.MustCompile(`\bis not null\b`), "is null"},
	{regexp.MustCompile(`\bleast\b`), "greatest"},
	{regexp.MustCompile(`\bgreatest\b`), "least"},
	{regexp.MustCompile(`\bmin\b`), "max"},
	{regexp.MustCompile(`\bmax\b`), "min"},
	{regexp.MustCompile(`\btrue\b`), "false"},
	{regexp.MustCompile(`\bfalse\b`), "true"},
	{regexp.MustCompile(`<>`), "="},
	{regexp.MustCompile(`<=`), "<"},
	{regexp.MustCompile(`>=`), ">"},
	{regexp.MustCompile(` < `), " <= "},
	{regexp.MustCompile(` > `), " >= "},
	{regexp.MustCompile(` \+ 1\b`), " + 2"},
	{regexp.MustCompile(` - 1\b`), ""},
}

// sqlEdits breaks the SQL in a part of a file.
func sqlEdits(text []byte, from, to int) (edits []edit) {
	for _, rule := range sqlRules {
		for _, at := range rule.what.FindAllSubmatchIndex(text[from:to], -1) {
			at = at[len(at)-2:] // the group, where the rule has one
			e := edit{from + at[0], from + at[1], rule.by}
			if inPairs(text[e.from:e.to]) && !inComment(text, e.from) {
				edits = append(edits, e)
			}
		}
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	return edits
}

func inPairs(text []byte) bool {
	return bytes.Count(text, []byte("(")) == bytes.Count(text, []byte(")")) && bytes.Count(text, []byte("'"))%2 == 0
}

func inComment(text []byte, at int) bool {
	return bytes.Contains(text[bytes.LastIndexByte(text[:at], '\n')+1:at], []byte("--"))
}

var functionBody = regexp.MustCompile(`(?s)create or replace function firstseen\.(\w+)\(.*?as \$\$\n(.*?)\$\$;`)

// sqlFunctions breaks each function of a directory of migrations, where it was last made.
func sqlFunctions(dir string) (changes []change, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	slices.Reverse(files)
	var made []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		var newer []string
		for _, at := range functionBody.FindAllStringSubmatchIndex(up, -1) {
			name := up[at[2]:at[3]]
			if !slices.Contains(made, name) {
				newer = append(newer, name)
				changes = append(changes, apply(file, name, text, sqlEdits(text, at[4], at[5]))...)
			}
		}
		made = append(made, newer...)
	}
	return changes, nil
}

// sqlDir is the variable that names the directory of migrations for tests that were built by sqlFromDisk.
const sqlDir = "FIRSTSEEN_MUTANTS_SQL"

// sqlFromDisk is an overlay by which the migrations are read at run time: tests are built once for all changes.
func sqlFromDisk(dir string) (overlay string, err error) {
	const file = "migrations/migrations.go"
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for _, r := range [][2]string{
		{"\t\"embed\"\n", "\t_ \"embed\"\n\t\"os\"\n"},
		{"//go:embed sql/*.sql\nvar files embed.FS",
			"var files = os.DirFS(os.Getenv(\"" + sqlDir + "\")).(fs.ReadFileFS)"},
	} {
		if !bytes.Contains(text, []byte(r[0])) {
			return "", fmt.Errorf("%s has no %q", file, r[0])
		}
		text = bytes.Replace(text, []byte(r[0]), []byte(r[1]), 1)
	}
	broken := filepath.Join(dir, "migrations.go")
	if err := os.WriteFile(broken, text, 0o600); err != nil { //nolint:gosec // in a directory of ours
		return "", err
	}
	return writeOverlay(dir, map[string]string{file: broken})
}

// writeSQL writes all migrations, one of them broken.
func writeSQL(dir string, c *change) error {
	to := filepath.Join(dir, "sql")
	if err := os.CopyFS(to, os.DirFS(filepath.Dir(c.file))); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, filepath.Base(c.file)), c.broken, 0o600)
}
