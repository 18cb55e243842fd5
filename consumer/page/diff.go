package page

import (
	"bytes"
	"encoding/json"
	"strings"
)

// line is one line of a diff: of both sides (' '), of the first (-) or of the second (+) only.
type line struct{ Mark, Text string }

// maxDiffLines caps the lines of each side of which a diff looks for those that both have.
const maxDiffLines = 1500

// diff is what the second of two texts has other than the first, by lines.
func diff(a, b []string) (out []line) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	out = mark(out, " ", a[:head])
	out = append(out, between(a[head:len(a)-tail], b[head:len(b)-tail])...)
	return mark(out, " ", a[len(a)-tail:])
}

// between keeps the longest common subsequence, where the sides are not too long to look for it.
func between(a, b []string) (out []line) {
	if len(a) > maxDiffLines || len(b) > maxDiffLines {
		return mark(mark(nil, "-", a), "+", b)
	}
	common := make([][]int, len(a)+1) // of what follows
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			out = append(out, line{" ", a[i]})
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			out = append(out, line{"-", a[i]})
			i++
		default:
			out = append(out, line{"+", b[j]})
			j++
		}
	}
	return mark(mark(out, "-", a[i:]), "+", b[j:])
}

func mark(out []line, sign string, lines []string) []line {
	for _, text := range lines {
		out = append(out, line{sign, text})
	}
	return out
}

// lines are those of a text, of JSON by its fields.
func lines(content []byte) []string {
	if pretty, ok := indented(content); ok {
		content = pretty
	}
	if len(content) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
}

// indented is JSON with a line for each field, its numbers as they came.
func indented(content []byte) ([]byte, bool) {
	var out bytes.Buffer
	err := json.Indent(&out, content, "", "  ")
	return out.Bytes(), err == nil
}
