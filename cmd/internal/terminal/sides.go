package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/firstseen/firstseen/dedup/httpjson"
)

// sideWidth is the width of each side, in characters.
const sideWidth = 56

// Sides puts two values beside each other, line by line, and marks the lines that differ.
func Sides(out io.Writer, first, second []byte) error {
	a, kindA := Value(first)
	b, kindB := Value(second)
	sortedA, okA := sortedJSON(first)
	sortedB, okB := sortedJSON(second)
	switch {
	case okA && okB && sortedA == sortedB:
		_, _ = fmt.Fprintln(out, "Both are the same JSON, written in two ways:")
	case okA && okB:
		a, b = sortedA, sortedB
	}
	_, _ = fmt.Fprintf(out, "%s\n", side("FIRST: "+kindA, "COPY: "+kindB, ' '))
	for _, row := range align(lines(a), lines(b)) {
		left, right := row.a, row.b
		if row.mark == '|' {
			left, right = aroundDifference(row.a, row.b)
		}
		if _, err := fmt.Fprintln(out, side(left, right, row.mark)); err != nil {
			return err
		}
	}
	return nil
}

// sortedJSON is JSON indented, with sorted keys and numbers as they were written. Of keys that are there twice it
// keeps the last.
func sortedJSON(value []byte) (string, bool) {
	if !canIndent(value) {
		return "", false
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil || dec.Decode(new(any)) != io.EOF {
		return "", false
	}
	sorted, err := httpjson.Marshal(v, "  ")
	if err != nil {
		return "", false
	}
	return Visible(string(sorted)), true
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// sideRow is one line of both sides. mark is a space where they are equal, else | < or >.
type sideRow struct {
	a, b string
	mark rune
}

// maxAligned bounds the table that align makes; of longer texts the middle is compared line by line.
const maxAligned = 4_000_000

// align matches the lines of two texts, by their longest common subsequence.
func align(a, b []string) (rows []sideRow) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		rows = append(rows, sideRow{a[0], b[0], ' '})
		a, b = a[1:], b[1:]
	}
	if len(a)*len(b) > maxAligned {
		return append(rows, replaced(a, b)...)
	}
	length := commonLengths(a, b)
	var goneA, goneB []string // since the last common line
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			rows = append(append(rows, replaced(goneA, goneB)...), sideRow{a[i], b[j], ' '})
			goneA, goneB = nil, nil
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			goneA = append(goneA, a[i])
			i++
		default:
			goneB = append(goneB, b[j])
			j++
		}
	}
	return append(rows, replaced(goneA, goneB)...)
}

// commonLengths gives, for each pair of rests, how long their longest common subsequence is.
func commonLengths(a, b []string) [][]int32 {
	length := make([][]int32, len(a)+1)
	for i := range length {
		length[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	return length
}

// replaced pairs lines that have nothing in common.
func replaced(a, b []string) (rows []sideRow) {
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(b):
			rows = append(rows, sideRow{a[i], "", '<'})
		case i >= len(a):
			rows = append(rows, sideRow{"", b[i], '>'})
		case a[i] == b[i]:
			rows = append(rows, sideRow{a[i], b[i], ' '})
		default:
			rows = append(rows, sideRow{a[i], b[i], '|'})
		}
	}
	return rows
}

// side lays out one line.
func side(a, b string, mark rune) string {
	left := fit(a)
	return strings.TrimRight(left+strings.Repeat(" ", sideWidth-len([]rune(left)))+" "+string(mark)+" "+fit(b), " ")
}

func fit(text string) string {
	runes := []rune(strings.ReplaceAll(text, "\t", "  "))
	if len(runes) <= sideWidth {
		return string(runes)
	}
	return string(runes[:sideWidth-1]) + "…"
}

// aroundDifference cuts the beginning off two long lines, so that where they differ is not cut off instead.
func aroundDifference(a, b string) (string, string) {
	x, y := []rune(a), []rune(b)
	at := 0
	for at < len(x) && at < len(y) && x[at] == y[at] {
		at++
	}
	if at < sideWidth-10 {
		return a, b
	}
	from := at - 10
	return "…" + string(x[from:]), "…" + string(y[from:])
}
