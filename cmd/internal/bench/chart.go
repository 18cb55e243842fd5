package bench

import (
	_ "embed"
	"html/template"
	"io"
	"math"
)

//go:embed chart.svg.tmpl
var chartSource string

var chartTemplate = template.Must(template.New("chart").Parse(chartSource))

// The chart's measures, in pixels.
const (
	chartWidth = 900
	chartLeft  = 310 // where the bars begin, labels end before it
	chartRight = 720 // where the bars end, ratios are written behind it
	chartTop   = 70
	chartRow   = 38
	chartFoot  = 46
)

type chart struct {
	Width, Height, Left, Right, Top, Bottom int
	One                                     float64 // where a ratio of 1 is
	Ticks                                   []chartTick
	Bars                                    []chartBar
}

type chartTick struct {
	X     float64
	Label string
}

// chartBar is one result: a bar from 1 to its ratio, and a mark at its goal.
type chartBar struct {
	Title, Against, Ratio, Goal string
	Met                         bool
	Y                           int
	X, Width, GoalX             float64
}

// drawChart draws the ratios that have a goal as bars on a logarithmic axis (SVG).
func drawChart(out io.Writer, results []Result) error {
	var drawn []Result
	for _, r := range results {
		if r.Goal != nil && r.Ratio > 0 && r.Ratio <= math.MaxFloat64 { // an infinite one has no place
			drawn = append(drawn, r)
		}
	}
	axis := newAxis(drawn)
	bottom := chartTop + chartRow*max(1, len(drawn))
	c := chart{Width: chartWidth, Height: bottom + chartFoot, Left: chartLeft, Right: chartRight, Top: chartTop,
		Bottom: bottom,
		One:    axis.x(1), Ticks: axis.ticks()}
	for i, r := range drawn {
		c.Bars = append(c.Bars, axis.bar(r, chartTop+i*chartRow))
	}
	return chartTemplate.Execute(out, c)
}

// axis is logarithmic: twice as much is as far from 1 as half as much.
type axis struct{ low, high float64 }

// newAxis spans 1, all ratios and all goals, and a little more.
func newAxis(results []Result) axis {
	low, high := 1.0, 1.0
	for _, r := range results {
		low, high = min(low, r.Ratio, *r.Goal), max(high, r.Ratio, *r.Goal)
	}
	return axis{low / 1.2, high * 1.2}
}

// x is a value's place, to a tenth of a pixel.
func (a axis) x(v float64) float64 {
	share := math.Log(v/a.low) / math.Log(a.high/a.low)
	return math.Round(10*(chartLeft+share*(chartRight-chartLeft))) / 10
}

// ticks are at 1, 2 and 5 times the powers of ten; where there are many of them, at the powers alone.
func (a axis) ticks() (ticks []chartTick) {
	steps := []float64{1, 2, 5}
	if a.high/a.low > 1000 {
		steps = steps[:1]
	}
	for power := math.Floor(math.Log10(a.low)); power <= math.Log10(a.high); power++ {
		for _, step := range steps {
			if v := step * math.Pow(10, power); v >= a.low && v <= a.high {
				ticks = append(ticks, chartTick{X: a.x(v), Label: figure(v)})
			}
		}
	}
	return ticks
}

func (a axis) bar(r Result, y int) chartBar {
	from, to := min(a.x(1), a.x(r.Ratio)), max(a.x(1), a.x(r.Ratio))
	return chartBar{Title: r.Suite + ": " + r.Case, Against: "against " + r.Against, Ratio: figure(r.Ratio),
		Goal: figure(*r.Goal),
		Met:  *r.Met, Y: y, X: from, Width: max(1, to-from), GoalX: a.x(*r.Goal)}
}
