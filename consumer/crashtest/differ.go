package crashtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// compared says which columns of which tables are compared.
type compared struct{ excluded map[string]string } // schema.table.column -> why

// leavesOut says that a column is not compared.
func (c *compared) leavesOut(t *table, column int) bool {
	_, out := c.excluded[t.name+"."+t.columns[column].name]
	return out
}

// learn does two runs without faults. From them it learns what is right, and which columns no message determines.
func (s *stack) learn(ctx context.Context, r *Result) (right *reference, err error) {
	first, err := s.play(ctx, &planned{name: "without faults", quiet: true})
	if err != nil {
		return nil, err
	}
	if first.run.Undone != "" {
		return nil, fmt.Errorf("without any fault the sample is not handled: %s", first.run.Undone)
	}
	s.tell("%s", first.run.line())
	if err := s.lookAtDead(first, r); err != nil {
		return nil, err
	}
	if err := s.known(first.holds); err != nil {
		return nil, err
	}
	first.holds.promised()
	right = &reference{holds: first.holds, compared: s.excluded(first.holds)}
	if err := s.lookAt(ctx, first, r); err != nil {
		return nil, err
	}
	s.lookAtWebhooks(r)
	again, err := s.play(ctx, &planned{name: "without faults, with sequences elsewhere", quiet: true, ahead: true})
	if err != nil {
		return nil, err
	}
	r.Suggestions = right.suggest(again.holds)
	r.Again = *again.run
	r.Again.Differences = again.differences(right)
	r.Tables = right.describe()
	s.tell("%s", r.Again.line())
	for _, g := range r.Suggestions {
		s.tell("column %s differs without any fault", g.Column)
	}
	return right, nil
}

// reference is what is right.
type reference struct {
	holds *tables
	compared
}

// known says which names of tables and columns that are asked for are none: less would be compared than one thinks.
func (s *stack) known(t *tables) error {
	var faults []error
	of := map[string]bool{}
	for _, one := range t.list {
		of[one.name] = true
		for _, col := range one.columns {
			of[one.name+"."+col.name] = true
		}
	}
	for _, name := range slices.Concat(s.config.Tables, s.config.Exclude) {
		if !of[name] {
			faults = append(faults, fmt.Errorf("there is no %s; write schema.table, or schema.table.column", name))
		}
	}
	return errors.Join(faults...)
}

// excluded are the columns that are left out as the config says.
func (s *stack) excluded(t *tables) compared {
	c := compared{map[string]string{}}
	for _, one := range t.list {
		for _, col := range one.columns {
			name := one.name + "." + col.name
			switch {
			case col.beside:
				c.excluded[name] = "told beside"
			case slices.Contains(s.config.Exclude, name):
				c.excluded[name] = "asked for"
			case s.config.ExcludeDefaults && col.fills != "":
				c.excluded[name] = "filled in from " + col.fills
			}
		}
	}
	return c
}

// suggest finds the columns whose values are others though no fault made them so, and leaves them out from here on.
func (right *reference) suggest(again *tables) (list []Suggestion) {
	for i, one := range right.holds.list {
		other := again.list[i]
		if len(one.rows) != len(other.rows) || one.name == calls {
			continue
		}
		for c, col := range one.columns {
			if right.leavesOut(one, c) || slices.Equal(one.values(c), other.values(c)) {
				continue
			}
			name := one.name + "." + col.name
			right.excluded[name] = "differs without faults"
			list = append(list, Suggestion{Column: name, Fills: col.fills})
		}
	}
	return list
}

// values are a column's, sorted.
func (t *table) values(column int) []string {
	values := make([]string, len(t.rows))
	for i, row := range t.rows {
		values[i] = row[column]
	}
	slices.Sort(values)
	return values
}

func (right *reference) describe() (list []Table) {
	for _, t := range right.holds.list {
		one := Table{Name: t.name, Rows: len(t.rows)}
		for i, c := range t.columns {
			if right.leavesOut(t, i) {
				one.Excluded = append(one.Excluded, c.name)
			}
		}
		list = append(list, one)
	}
	return list
}

// differences are the rows that a run has otherwise than is right.
func (t *trial) differences(right *reference) (list []Difference) {
	for i, one := range right.holds.list {
		list = append(list, t.differencesOf(one, t.holds.list[i], right)...)
	}
	return list
}

func (t *trial) differencesOf(right, has *table, by *reference) (list []Difference) {
	missing, extra := by.minus(right, has), by.minus(has, right)
	others := by.byKey(right, extra)
	paired := map[int]bool{}
	for _, row := range missing {
		d := Difference{Table: right.name, Kind: Missing, Row: by.shown(right, row)}
		if i, same := others[by.keyOf(right, row)]; same && !paired[i] {
			d.Kind, d.Row, d.Changed = Changed, by.shownKey(right, row), by.changes(right, row, extra[i])
			row = append(slices.Clone(row), extra[i]...)
			paired[i] = true
		}
		list = append(list, t.explained(d, row, len(list)))
	}
	for i, row := range extra {
		if !paired[i] {
			d := Difference{Table: right.name, Kind: Extra, Row: by.shown(right, row)}
			list = append(list, t.explained(d, row, len(list)))
		}
	}
	return list
}

// minus are the rows of a that b has not, each as often as it lacks it.
func (c *compared) minus(a, b *table) (rows [][]string) {
	counts := map[string]int{}
	for _, row := range b.rows {
		counts[c.text(b, row)]++
	}
	for _, row := range a.rows {
		text := c.text(a, row)
		if counts[text]--; counts[text] < 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// text is what of a row is compared.
func (c *compared) text(t *table, row []string) string {
	var kept []string
	for i, cell := range row {
		if !c.leavesOut(t, i) {
			kept = append(kept, cell)
		}
	}
	return strings.Join(kept, "\x00\x00")
}

// byKey finds rows by their primary keys.
func (c *compared) byKey(t *table, rows [][]string) map[string]int {
	found := map[string]int{}
	for i, row := range rows {
		if key := c.keyOf(t, row); key != "" {
			found[key] = i
		}
	}
	return found
}

// keyOf is a row's primary key; empty: there is none, or not all of it is compared.
func (c *compared) keyOf(t *table, row []string) string {
	var key strings.Builder
	for _, i := range t.key {
		if c.leavesOut(t, i) {
			return ""
		}
		key.WriteString(row[i] + "\x00\x00")
	}
	return key.String()
}

func (c *compared) shown(t *table, row []string) (cells []Cell) {
	for i, cell := range row {
		if !c.leavesOut(t, i) {
			cells = append(cells, Cell{t.columns[i].name, shownCell(cell)})
		}
	}
	return cells
}

func (c *compared) shownKey(t *table, row []string) (cells []Cell) {
	for _, i := range t.key {
		cells = append(cells, Cell{t.columns[i].name, shownCell(row[i])})
	}
	return cells
}

func (c *compared) changes(t *table, right, has []string) (list []Change) {
	for i := range right {
		if !c.leavesOut(t, i) && right[i] != has[i] {
			list = append(list, Change{t.columns[i].name, shownCell(right[i]), shownCell(has[i])})
		}
	}
	return list
}

// shownCell is a value as a person reads it, cut where it is long.
func shownCell(cell string) string {
	const most = 80
	if cell == null {
		return "null"
	}
	if runes := []rune(cell); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return cell
}
