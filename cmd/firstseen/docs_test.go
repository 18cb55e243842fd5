package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDocsNameExistingCommandsAndFlags(t *testing.T) {
	checked := 0
	for _, d := range documents(t) {
		for _, words := range d.commands() {
			if args, ours := programArgs(words); ours {
				checked++
				assert.NoError(t, checkCommandLine(args), "%s: %q", d.name, strings.Join(words, " "))
			}
		}
	}
	require.Greater(t, checked, 30)
}

// commands are what a reader could type: the lines of shell blocks, and the spans that look like one.
func (d *document) commands() (all [][]string) {
	for _, b := range d.blocks {
		if b.language == "sh" || b.language == "" {
			all = append(all, commandLines(b.text)...)
		}
	}
	for _, s := range d.spans {
		all = append(all, splitCommands(s)...)
	}
	return all
}

// programArgs are the arguments of our program, if it is ours that a command calls.
func programArgs(words []string) (args []string, ours bool) {
	switch {
	case words[0] == "firstseen" || words[0] == "bin/firstseen":
		args = words[1:]
	case len(words) > 2 && words[0] == "go" && words[1] == "run" && words[2] == "./cmd/firstseen":
		args = words[3:]
	default:
		return nil, false
	}
	// "firstseen dead list | show": a list of commands, not a pipe, and "firstseen 1.0": a version, are for people.
	return args, len(args) > 0 && regexp.MustCompile(`^[a-z-]+$`).MatchString(args[0])
}

// checkCommandLine finds the command and parses its flags and arguments, as the program would before it begins.
func checkCommandLine(args []string) error {
	root := newRoot()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	if help, _ := cmd.Flags().GetBool("help"); help || cmd.Name() == "help" || len(rest) == 0 {
		return nil // without arguments a page only names the command
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	return cmd.ValidateRequiredFlags()
}

func TestDocsNameExistingMakeTargetsAndPackages(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	require.NoError(t, err)
	for _, d := range documents(t) {
		for _, words := range d.commands() {
			if len(words) > 1 && words[0] == "make" {
				assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(words[1])+`:`, string(makefile),
					"%s: make %s", d.name, words[1])
			}
			if len(words) > 2 && words[0] == "go" && slices.Contains([]string{"run", "build", "test"}, words[1]) {
				checkPackages(t, d.name, words[2:])
			}
		}
	}
}

func checkPackages(t *testing.T, page string, args []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "./") && !strings.Contains(a, "...") {
			assert.DirExists(t, filepath.Join(root(t), a), page)
		}
	}
}

func TestLinksOfDocsLeadSomewhere(t *testing.T) {
	pages := documents(t)
	for _, d := range pages {
		for _, link := range d.links {
			if strings.Contains(link, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link, "#")
			target := d.name
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(d.name), path))
			}
			_, err := os.Stat(filepath.Join(root(t), target))
			assert.NoError(t, err, "%s links to %s", d.name, link)
			i := slices.IndexFunc(pages, func(o document) bool { return o.name == target })
			if anchor != "" && i >= 0 {
				assert.Contains(t, pages[i].titles, anchor, "%s links to %s", d.name, link)
			}
		}
	}
}

// What a page shows of Go is what is compiled and tested somewhere else, word for word.
func TestGoOfDocsIsQuotedFromTheRepository(t *testing.T) {
	sources := goSources(t)
	quoted := 0
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			if b.language != "go" {
				continue
			}
			for _, declaration := range declarations(t, d.name, b) {
				quoted++
				assert.True(t,
					slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(s, declaration) }),
					"%s:%d: in no file of the repository:\n%s", d.name, b.line, declaration)
			}
		}
	}
	require.Greater(t, quoted, 3)
}

func goSources(t *testing.T) (texts []string) {
	for _, pattern := range []string{"cmd/guide/*.go", "consumer/*_test.go", "handlers/*_test.go",
		"handlers/outbox/*_test.go", "dedup/*_test.go",
		"dedup/idempotency/*_test.go", "dedup/online/*_test.go"} {
		paths, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(pattern)))
		require.NoError(t, err)
		for _, p := range paths {
			text, err := os.ReadFile(p)
			require.NoError(t, err)
			texts = append(texts, string(text))
		}
	}
	return texts
}

// declarations are the top-level pieces of a block, each without the comment above it.
func declarations(t *testing.T, page string, b block) (texts []string) {
	const header = "package p\n"
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "", header+b.text, parser.ParseComments)
	require.NoError(t, err, "%s:%d: not Go", page, b.line)
	for _, d := range parsed.Decls {
		from, to := files.Position(d.Pos()).Offset, files.Position(d.End()).Offset
		if f, ok := d.(*ast.FuncDecl); ok {
			from = files.Position(f.Type.Func).Offset
		}
		texts = append(texts, (header + b.text)[from:to])
	}
	return texts
}
