package crashtest

import (
	"encoding/json"
	"fmt"
	"slices"
)

// mostExplained bounds the rows of one table whose messages are looked for: nobody reads on, and each look is at the
// whole sample.
const mostExplained = 100

// explained adds the message that the n-th row to differ seems to come from, and the faults that it met.
func (t *trial) explained(d Difference, row []string, n int) Difference {
	if n >= mostExplained {
		return d
	}
	at := t.messageOf(row)
	if at < 0 {
		return d
	}
	c := &Cause{Line: at + 1}
	for i, s := range t.sent {
		if s.of != at {
			continue
		}
		r := t.records[i]
		here := place{r.Topic, r.Partition}
		c.Sent = append(c.Sent, fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset))
		if k, known := t.holds.origins[origin{here, r.Offset}]; known {
			c.ID = k.shown()
		}
		for _, f := range t.run.Faults {
			if span, open := f.open[here]; open && span.from <= r.Offset && r.Offset < span.to {
				c.Faults = append(c.Faults, f.Number)
			}
		}
	}
	slices.Sort(c.Faults)
	c.Faults = slices.Compact(c.Faults)
	d.Cause = c
	return d
}

func (k known) shown() string {
	if k.rawID != "" {
		return k.rawID
	}
	return k.id
}

// marks are what a message is told by in rows.
type marks struct{ ids, values []string }

// messageOf is the one message of the sample that most in a row comes from, by its ID, key and values; -1: none, or
// not one alone.
func (t *trial) messageOf(row []string) (at int) {
	const least = 2
	if t.marks == nil {
		t.marks = t.mark()
	}
	best, at := least-1, -1
	for i := range t.marks {
		switch score := t.marks[i].score(row); {
		case score > best:
			best, at = score, i
		case score == best:
			at = -1
		}
	}
	return at
}

// score counts what of a message is in a row. An ID is as good as all else together.
func (m *marks) score(row []string) (score int) {
	const ofID = 1000
	in := func(text string) bool { return slices.Contains(row, text) }
	if slices.ContainsFunc(m.ids, in) {
		return ofID
	}
	for _, v := range m.values {
		if in(v) {
			score++
		}
	}
	return score
}

// mark gathers the marks of all messages: their headers, keys and values, and what Postgres knows them by.
func (t *trial) mark() []marks {
	all := make([]marks, len(t.s.config.Messages))
	for i := range all {
		m, of := &t.s.config.Messages[i], &all[i]
		for _, h := range m.Headers {
			of.ids = append(of.ids, string(h.Value))
		}
		if m.Key != nil {
			of.values = append(of.values, string(m.Key))
		}
		var value any
		if json.Unmarshal(m.Value, &value) == nil {
			of.values = append(of.values, leaves(value)...)
		}
	}
	for i, s := range t.sent {
		r := t.records[i]
		if k, known := t.holds.origins[origin{place{r.Topic, r.Partition}, r.Offset}]; known {
			all[s.of].ids = append(all[s.of].ids, k.id, k.rawID)
		}
	}
	for i := range all {
		all[i].ids = slices.DeleteFunc(all[i].ids, func(id string) bool { return id == "" })
	}
	return all
}

// leaves are the texts and numbers in a value of JSON.
func leaves(v any) (texts []string) {
	switch v := v.(type) {
	case map[string]any:
		for _, one := range v {
			texts = append(texts, leaves(one)...)
		}
	case []any:
		for _, one := range v {
			texts = append(texts, leaves(one)...)
		}
	case string:
		texts = append(texts, v)
	case float64:
		text, _ := json.Marshal(v)
		texts = append(texts, string(text))
	}
	return texts
}
