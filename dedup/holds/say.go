package holds

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// How holds are logged: the first of a code at once, and those that begin within some seconds together, for an outage
// begins for all partitions; their ends in the same way; and now and then those that last. What begins and ends before
// it was its turn is not worth a line.
const (
	gathering = 5 * time.Second
	reminding = 5 * time.Minute
	maxNamed  = 10
)

// said collects the log's lines about a code.
type said struct {
	entry          Entry
	holds          map[*Place][]any // those that are to be logged, with their attributes
	logged         map[*Place]bool  // those that were, and last
	ended          []ended          // those whose end is to be logged
	begunAt, endAt time.Time        // when either was logged last
	reminded       time.Time
}

// ended is a hold that is over, and how long it took.
type ended struct {
	Hold
	took time.Duration
}

func (r *Registry) saying(code string) *said {
	s := r.said[code]
	if s == nil {
		s = &said{entry: EntryOf(code), holds: map[*Place][]any{}, logged: map[*Place]bool{}}
		r.said[code] = s
	}
	return s
}

func (s *said) begin(p *Place, attrs []any) { s.holds[p] = attrs }

// end takes a place's hold out, whose subject goes on, and has its end logged if its begin was.
func (s *said) end(p *Place) {
	if s.logged[p] {
		h := *p.now.Load()
		s.ended = append(s.ended, ended{h, time.Since(h.Since)})
	}
	s.forget(p)
}

// forget takes a place's hold out, whose subject does not go on: nothing is said of its end.
func (s *said) forget(p *Place) {
	delete(s.holds, p)
	delete(s.logged, p)
}

// Run logs what was gathered, and what lasts, until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.change(func(*Registry) {})
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

type line struct {
	level   slog.Level
	message string
	attrs   []any
}

// mark gives lines the registry's attribute, before their own. Call it with mu held.
func (r *Registry) mark(lines []line) {
	for i := range lines {
		if l := &lines[i]; r.key != "" && !slices.Contains(l.attrs, any(r.key)) {
			l.attrs = append([]any{r.key, r.value}, l.attrs...)
		}
	}
}

// due takes the lines that it is time for. Call it with mu held.
func (r *Registry) due(now time.Time) (lines []line) {
	for _, s := range r.said {
		switch {
		case len(s.holds) > 0 && now.Sub(s.begunAt) >= gathering:
			lines = append(lines, s.sayBegun(now))
		case len(s.logged) > 0 && now.Sub(s.reminded) >= reminding:
			lines = append(lines, s.sayLasting(now))
		}
		if len(s.ended) > 0 && now.Sub(s.endAt) >= gathering {
			lines = append(lines, s.sayEnded(now))
		}
	}
	return lines
}

func (s *said) sayBegun(now time.Time) line {
	var begun []Hold
	var attrs []any
	for p, more := range s.holds {
		begun = append(begun, *p.now.Load())
		attrs = more
		s.logged[p] = true
	}
	if len(begun) > 1 {
		attrs = nil // they are one hold's
	}
	clear(s.holds)
	s.begunAt, s.reminded = now, now
	return s.waiting(begun, attrs...)
}

func (s *said) sayLasting(now time.Time) line {
	var lasting []Hold
	oldest := now
	for p := range s.logged {
		h := p.now.Load()
		lasting = append(lasting, *h)
		if h.Since.Before(oldest) {
			oldest = h.Since
		}
	}
	s.reminded = now
	return s.waiting(lasting, "for", now.Sub(oldest).Round(time.Second))
}

func (s *said) waiting(list []Hold, attrs ...any) line {
	sorted(list)
	attrs = append(named(list), append(attrs, "hold", s.entry.Code, "reason", list[0].Reason, "do", s.entry.Do)...)
	l := line{s.entry.Level, "waiting: " + s.entry.Means, attrs}
	if s.entry.Decision {
		l.message = "HELD: " + s.entry.Means
	}
	if l.level == 0 {
		l.level = slog.LevelError
	}
	return l
}

func (s *said) sayEnded(now time.Time) line {
	var over []Hold
	tries, longest := 0, time.Duration(0)
	for _, h := range s.ended {
		over = append(over, h.Hold)
		tries, longest = max(tries, h.Tries), max(longest, h.took)
	}
	sorted(over)
	attrs := append(named(over), "hold", s.entry.Code, "after", longest.Round(time.Millisecond), "tries", tries)
	if left := len(s.logged); left > 0 {
		attrs = append(attrs, "still_waiting", left)
	}
	s.ended, s.endAt = nil, now
	return line{slog.LevelInfo, "goes on again", attrs}
}

// named are the subjects as attributes, by their kinds.
func named(list []Hold) (attrs []any) {
	byKind := map[Kind][]string{}
	for _, h := range list {
		if !slices.Contains(byKind[h.Kind], h.Name) {
			byKind[h.Kind] = append(byKind[h.Kind], h.Name)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		names := byKind[kind]
		text := strings.Join(names[:min(len(names), maxNamed)], ", ")
		if more := len(names) - maxNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		attrs = append(attrs, string(kind), text)
	}
	return attrs
}
