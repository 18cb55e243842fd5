package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Result is one figure.
type Result struct {
	Suite string  `json:"suite"`
	Case  string  `json:"case"`
	Value float64 `json:"value"` // the median of the rounds; the most of them where it is to stay below a bound
	Low   float64 `json:"low"`   // the least and the most of the rounds
	High  float64 `json:"high"`
	Unit  string  `json:"unit"`
	// Against names what Ratio compares with; empty where the value stands for itself.
	Against string  `json:"against,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	// Goal is for Ratio where there is one, else for Value; nil where there is none.
	Goal *float64 `json:"goal,omitempty"`
	Met  *bool    `json:"met,omitempty"`
	// Note tells a reader what to know beside the figure.
	Note string `json:"note,omitempty"`
}

// atLeast sets a goal that the ratio, or the value where there is no ratio, must reach.
func (r Result) atLeast(goal float64) Result { return r.goal(goal, r.subject() >= goal) }

// atMost sets a goal that the ratio, or the value where there is no ratio, must not exceed.
func (r Result) atMost(goal float64) Result { return r.goal(goal, r.subject() <= goal) }

func (r Result) goal(goal float64, met bool) Result {
	r.Goal, r.Met = &goal, &met
	return r
}

func (r Result) subject() float64 {
	if r.Against != "" {
		return r.Ratio
	}
	return r.Value
}

// series are the figures of one case, one a round.
type series []float64

func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[len(sorted)/2]
}

// result is the series as a figure.
func (s series) result(name, unit string) Result {
	return Result{Case: name, Value: s.median(), Low: slices.Min(s), High: slices.Max(s), Unit: unit}
}

// against is the series as a figure beside another, of the same rounds. The ratio is the median of the rounds' ratios.
func (s series) against(other series, name, unit, otherName string) Result {
	r := s.result(name, unit)
	ratios := make(series, len(s))
	for i := range s {
		ratios[i] = s[i] / other[i]
	}
	r.Against, r.Ratio = otherName, ratios.median()
	return r
}

// most is the series as a figure that must stay below a bound: the highest counts.
func (s series) most(name, unit string) Result {
	r := s.result(name, unit)
	r.Value = r.High
	return r
}

// contender measures one round of a case.
type contender struct {
	name string
	run  func() (float64, error)
}

// interleave runs the contenders in rounds, each round beginning with another one.
func interleave(rounds int, contenders ...contender) (map[string]series, error) {
	all := map[string]series{}
	for round := range rounds {
		for i := range contenders {
			c := contenders[(round+i)%len(contenders)]
			figure, err := c.run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			all[c.name] = append(all[c.name], figure)
		}
	}
	return all, nil
}

// report takes results into the suite that is running.
func (l *lab) report(results ...Result) error {
	for _, r := range results {
		r.Suite = l.suite
		l.results = append(l.results, r)
		printRow(l.options.Out, r)
		if l.options.JSON == nil {
			continue
		}
		if err := json.NewEncoder(l.options.JSON).Encode(r); err != nil {
			return err
		}
	}
	return nil
}

func printRow(out io.Writer, r Result) {
	w := tabwriter.NewWriter(out, 34, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\n", r.Case, r.measured(), r.verdict())
	_ = w.Flush()
	if r.Note != "" {
		_, _ = fmt.Fprintf(out, "      %s\n", r.Note)
	}
}

func (r Result) measured() string {
	if r.Low == r.High {
		return fmt.Sprintf("%s %s", figure(r.Value), r.Unit)
	}
	return fmt.Sprintf("%s %s (%s to %s)", figure(r.Value), r.Unit, figure(r.Low), figure(r.High))
}

func (r Result) verdict() (text string) {
	if r.Against != "" {
		text = fmt.Sprintf("%.2f x %s", r.Ratio, r.Against)
	}
	if r.Goal == nil {
		return text
	}
	said := "missed"
	if *r.Met {
		said = "met"
	}
	return fmt.Sprintf("%s  [goal %s: %s]", text, figure(*r.Goal), said)
}

// figure writes a number with about three digits that mean something.
func figure(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	case v >= 100 || v == float64(int(v)):
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
