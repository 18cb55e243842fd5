package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// document is a page of the docs, taken apart.
type document struct {
	name   string // relative to the repository
	blocks []block
	spans  []string // code within the text
	links  []string // their targets
	titles []string // headings, as the anchors that they make
}

// block is a piece of code: fenced, or indented by four.
type block struct {
	language string // "" where nothing is said
	file     string // the name that the page gives it, the second word behind the fence
	text     string
	line     int
}

// documents are the pages for users.
func documents(t *testing.T) []document {
	t.Helper()
	base := root(t)
	paths, err := filepath.Glob(filepath.Join(base, "docs", "*.md"))
	require.NoError(t, err)
	paths = append(paths, filepath.Join(base, "README.md"), filepath.Join(base, "docs", "examples", "README.md"))
	pages := make([]document, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		name, err := filepath.Rel(base, path)
		require.NoError(t, err)
		pages[i] = parseDocument(filepath.ToSlash(name), string(text))
	}
	require.Greater(t, len(pages), 5)
	return pages
}

func findDocument(t *testing.T, name string) document {
	t.Helper()
	pages := documents(t)
	i := slices.IndexFunc(pages, func(d document) bool { return d.name == name })
	require.GreaterOrEqual(t, i, 0, "no page %s", name)
	return pages[i]
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpan     = regexp.MustCompile("`([^`]+)`")
	notInAnchor  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

func parseDocument(name, text string) document {
	d := document{name: name}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "```"):
			b := fencedBlock(lines, i)
			d.blocks = append(d.blocks, b)
			i += strings.Count(b.text, "\n") + 1
		case strings.HasPrefix(line, "    ") && (i == 0 || strings.TrimSpace(lines[i-1]) == ""):
			b := indentedBlock(lines, i)
			d.blocks = append(d.blocks, b)
			i += strings.Count(b.text, "\n") - 1
		default:
			d.parseLine(line)
		}
	}
	return d
}

func (d *document) parseLine(line string) {
	if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
		anchor := notInAnchor.ReplaceAllString(strings.ToLower(title), "")
		d.titles = append(d.titles, strings.ReplaceAll(anchor, " ", "-"))
	}
	for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
		d.spans = append(d.spans, m[1])
	}
	for _, m := range markdownLink.FindAllStringSubmatch(line, -1) {
		d.links = append(d.links, m[1])
	}
}

// fencedBlock is the one that begins at line i, up to its end.
func fencedBlock(lines []string, i int) block {
	b := block{line: i + 1}
	for n, word := range strings.Fields(strings.TrimPrefix(lines[i], "```")) {
		switch n {
		case 0:
			b.language = word
		case 1:
			b.file = word
		}
	}
	for _, line := range lines[i+1:] {
		if strings.HasPrefix(line, "```") {
			break
		}
		b.text += line + "\n"
	}
	return b
}

func indentedBlock(lines []string, i int) block {
	b := block{line: i + 1}
	for _, line := range lines[i:] {
		rest, ok := strings.CutPrefix(line, "    ")
		if !ok {
			break
		}
		b.text += rest + "\n"
	}
	return b
}

// commandLines are the simple commands of a script, each in words, as far as a line says them without variables and
// loops.
func commandLines(script string) (commands [][]string) {
	for line := range strings.SplitSeq(script, "\n") {
		commands = append(commands, splitCommands(line)...)
	}
	return commands
}

// splitCommands takes a line of a shell apart: words, quotes, and what stands between commands.
func splitCommands(line string) (commands [][]string) {
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote != 0:
			word.WriteRune(c)
		case c == ' ' || c == '\t':
			endWord()
		case c == '#' && !inWord:
			endCommand()
			return commands
		case strings.ContainsRune("|;&<>", c):
			if c == '>' && word.String() == "2" {
				word.Reset()
				inWord = false
			}
			endCommand()
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	endCommand()
	return commands
}
