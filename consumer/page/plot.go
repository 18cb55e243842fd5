package page

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	apiview "github.com/firstseen/firstseen/consumer/view"
)

// A plot's size, in its own units.
const (
	plotWidth  = 600
	plotHeight = 100
)

// span is the time that plots show, an hour or less where the process is young, and how it is called.
type span struct {
	time.Duration
	Text string
}

// spanOf is the shortest that has all of a process's time, or an hour.
func spanOf(age time.Duration) span {
	for _, s := range []span{{5 * time.Minute, "5 minutes"}, {20 * time.Minute, "20 minutes"}} {
		if age <= s.Duration {
			return s
		}
	}
	return span{time.Hour, "hour"}
}

// plot is a line over a span.
type plot struct {
	Title, Now, Most, Unit, Span string
	Lines                        []string // points, of each stretch without a gap
	Dots                         []dot    // stretches of one sample
	Gaps                         []gap    // times that nothing is known of
}

type dot struct{ X, Y string }

type gap struct{ X, Width string }

// point is a value at a time.
type point struct {
	at    time.Time
	value float64
}

// series are the values of samples, in stretches: no two in one stretch are further from each other than twice the time
// that lies between samples.
func series(h *apiview.History, value func(*apiview.Sample) (float64, bool)) (stretches [][]point) {
	var last time.Time
	for i := range h.Samples {
		s := &h.Samples[i]
		v, ok := value(s)
		if !ok {
			continue
		}
		if n := len(stretches); n == 0 || apart(h, last, s.At) {
			stretches = append(stretches, []point{{s.At, v}})
		} else {
			stretches[n-1] = append(stretches[n-1], point{s.At, v})
		}
		last = s.At
	}
	return stretches
}

func apart(h *apiview.History, a, b time.Time) bool { return b.Sub(a).Seconds() > 2*h.Every }

// rates are how much a total has grown a second, between samples.
func rates(h *apiview.History, total func(*apiview.Totals) int64) [][]point {
	var before *apiview.Sample
	return series(h, func(s *apiview.Sample) (rate float64, ok bool) {
		if before != nil && !apart(h, before.At, s.At) && s.At.After(before.At) {
			grown := total(&s.Totals) - total(&before.Totals)
			rate, ok = float64(grown)/s.At.Sub(before.At).Seconds(), grown >= 0
		}
		before = s
		return rate, ok
	})
}

// draw makes a plot of the time before now.
func draw(title, unit string, now time.Time, of span, stretches [][]point, write func(float64) string) plot {
	p := plot{Title: title, Unit: unit, Now: "not known", Span: of.Text}
	most := 0.0
	for _, s := range stretches {
		for _, at := range s {
			most = max(most, at.value)
		}
	}
	if len(stretches) > 0 {
		p.Most = write(most)
	}
	top := max(most, 1e-9)
	from := now.Add(-of.Duration)
	x := func(at time.Time) float64 {
		return plotWidth * min(1, max(0, at.Sub(from).Seconds()/of.Seconds()))
	}
	known := 0.0 // up to where something is known
	for _, s := range stretches {
		if s[len(s)-1].at.Before(from) {
			continue
		}
		p.addGap(known, x(s[0].at))
		known = x(s[len(s)-1].at)
		p.addStretch(s, x, top)
		p.Now = write(s[len(s)-1].value)
	}
	p.addGap(known, plotWidth)
	return p
}

func (p *plot) addStretch(s []point, x func(time.Time) float64, top float64) {
	var points []string
	for _, at := range s {
		points = append(points, coordinate(x(at.at))+","+coordinate(height(at.value, top)))
	}
	if len(points) == 1 {
		cx, cy, _ := strings.Cut(points[0], ",")
		p.Dots = append(p.Dots, dot{cx, cy})
		return
	}
	p.Lines = append(p.Lines, strings.Join(points, " "))
}

// addGap marks what nothing is known of, but for what lies between a sample and the next.
func (p *plot) addGap(from, to float64) {
	if to-from > 5 {
		p.Gaps = append(p.Gaps, gap{coordinate(from), coordinate(to - from)})
	}
}

func height(value, top float64) float64 { return plotHeight - 2 - (plotHeight-6)*value/top }

func coordinate(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

func perSecond(v float64) string {
	if v != 0 && v < 10 {
		return fmt.Sprintf("%.1f/s", v)
	}
	return count(int64(v+0.5)) + "/s"
}

func whole(v float64) string { return count(int64(v)) }
