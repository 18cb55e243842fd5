// Package mask hides parts of messages from those who look at them by the admin API: fields of JSON values, headers,
// keys. Rules are made of a [Config] and applied to a [dedup.Message] that is to be shown; what is stored and what handlers get
// is not touched. What can't be told apart is hidden: a value that is no JSON goes as a whole.
//
// Files in reading order: mask.go (what is hidden), path.go (where in a value).
package mask

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/firstseen/firstseen/dedup"
)

// What stands in place of what is hidden, whatever it is and however long. Differs is of two messages side by side, where
// the other one has something else there.
const (
	Text    = "***"
	Differs = "*** differs"
)

// Config says what is hidden. The zero Config hides nothing.
type Config struct {
	// Values are places in values that are JSON: pointers (RFC 6901) in which * is any name or index, such as
	// /customer/iban, and the whole value where it is / or empty. With a topic's name and a colon before it, it is of
	// that topic only. Names count in any case; a list that a pointer passes by name is passed for each of its elements, and what
	// is a text or a number where the pointer goes on is hidden.
	Values []string
	// Headers are names, in any case; * is all.
	Headers []string
	// Keys are the topics whose keys are hidden; * is all.
	Keys []string
	// ShowErrors has the errors of handlers shown that failed at such messages. They may quote what is hidden.
	// Default: they are hidden too.
	ShowErrors bool
}

// Fault is something that is wrong in a Config, and in which of its lists: values, headers or keys.
type Fault struct{ List, Text string }

// Faults are all that are wrong.
func (c Config) Faults() (faults []Fault) {
	for _, text := range c.Values {
		if _, err := parse(text); err != nil {
			faults = append(faults, Fault{"values", err.Error()})
		}
	}
	for list, names := range map[string][]string{"headers": c.Headers, "keys": c.Keys} {
		if slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == "" }) {
			faults = append(faults, Fault{list, "has an empty name"})
		}
	}
	return faults
}

// New makes the rules of a config, and reports every fault at once.
func New(c Config) (*Rules, error) {
	var faults []error
	for _, f := range c.Faults() {
		faults = append(faults, fmt.Errorf("%s: %s", f.List, f.Text))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("mask: %w", err)
	}
	r := &Rules{headers: c.Headers, keys: c.Keys, showErrors: c.ShowErrors}
	for _, text := range c.Values {
		p, _ := parse(text)
		r.values = append(r.values, p)
	}
	return r, nil
}

// Rules hide what a Config says. Nil hides nothing. They are safe for concurrent use.
type Rules struct {
	values        []place
	headers, keys []string
	showErrors    bool
}

// Hides says whether something of a topic's messages may be hidden; of an unknown one's, which is empty, where it may be
// of any.
func (r *Rules) Hides(topic string) bool {
	return r != nil && (len(r.headers) > 0 || r.HidesKey(topic) || r.HidesValue(topic))
}

// HidesValue says whether something of a topic's values may be hidden.
func (r *Rules) HidesValue(topic string) bool {
	return r != nil && slices.ContainsFunc(r.values, func(p place) bool { return topic == "" || p.of(topic) })
}

// HidesKey says whether a topic's keys are hidden; an unknown one's, where any's are.
func (r *Rules) HidesKey(topic string) bool {
	return r != nil && slices.ContainsFunc(r.keys, func(of string) bool { return of == "*" || of == topic || topic == "" })
}

// Error is the text of an error of a topic's message, as it is shown.
func (r *Rules) Error(topic, text string) string {
	if text == "" || !r.Hides(topic) || r.showErrors {
		return text
	}
	return Text
}

// Apply hides what is to be hidden of a message, by putting other slices in place of its own, and says whether there was
// anything.
func (r *Rules) Apply(m *dedup.Message) (hidden bool) { return r.apply(m, nil) }

// ApplyBoth does so to two messages that are shown side by side: where both have the same, Text stands in both, and else
// Differs.
func (r *Rules) ApplyBoth(a, b *dedup.Message) (hiddenOfA, hiddenOfB bool) {
	ofA, ofB := *a, *b
	return r.apply(a, &ofB), r.apply(b, &ofA)
}

// apply compares with another message, unless that is nil.
func (r *Rules) apply(m, other *dedup.Message) (hidden bool) {
	if r == nil {
		return false
	}
	if m.Key != nil && r.HidesKey(m.Topic) {
		m.Key, hidden = textOf(other != nil && !equal(m.Key, other.Key)), true
	}
	if len(r.headers) > 0 {
		hidden = r.applyHeaders(m, other) || hidden
	}
	var otherValue, otherJSON []byte
	if other != nil {
		otherValue, otherJSON = orEmpty(other.Value), orEmpty(other.JSON())
	}
	shown, of := r.value(m.Topic, m.Value, otherValue)
	m.Value, hidden = shown, hidden || of
	if m.Decoded != nil {
		shown, of = r.value(m.Topic, m.Decoded.JSON, otherJSON)
		m.Decoded, hidden = &dedup.Decoded{JSON: shown, Err: m.Decoded.Err}, hidden || of
	}
	return hidden
}

// orEmpty is never nil: nil is that there is nothing to compare with.
func orEmpty(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

func equal(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func textOf(differs bool) []byte {
	if differs {
		return []byte(Differs)
	}
	return []byte(Text)
}

func (r *Rules) applyHeaders(m, other *dedup.Message) (hidden bool) {
	m.Headers = slices.Clone(m.Headers)
	for i := range m.Headers {
		h := &m.Headers[i]
		if h.Value == nil || !slices.ContainsFunc(r.headers, func(name string) bool {
			return name == "*" || strings.EqualFold(name, h.Key)
		}) {
			continue
		}
		same := other == nil || slices.ContainsFunc(other.Headers, func(o dedup.Header) bool {
			return o.Key == h.Key && equal(o.Value, h.Value)
		})
		h.Value, hidden = textOf(!same), true
	}
	return hidden
}

// value is one as it is shown. other is that of a message beside it; nil: there is none.
func (r *Rules) value(topic string, value, other []byte) (shown []byte, hidden bool) {
	var paths [][]string
	for _, p := range r.values {
		if p.of(topic) {
			paths = append(paths, p.path)
		}
	}
	if value == nil || len(paths) == 0 {
		return value, false
	}
	found, ok := find(value, paths)
	if !ok || leadsHere(paths) {
		return textOf(other != nil && !bytes.Equal(value, other)), true
	}
	if len(found) == 0 {
		return value, false
	}
	same := func(span) bool { return true }
	if other != nil {
		others, ok := find(other, paths)
		mine, theirs := parts(value, found), parts(other, others)
		same = func(s span) bool { return ok && slices.Equal(mine[s.path], theirs[s.path]) }
	}
	return replace(value, found, same), true
}

// replace puts a JSON text in place of what was found.
func replace(value []byte, found []span, same func(span) bool) (shown []byte) {
	last := 0
	for _, s := range found {
		shown = append(append(append(append(shown, value[last:s.from]...), '"'), textOf(!same(s))...), '"')
		last = s.to
	}
	return append(shown, value[last:]...)
}
