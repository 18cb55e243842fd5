package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawn is the chart as XML, its elements by class and name.
type drawn struct {
	bars, goals []map[string]string // attributes
	text        string
	elements    []string
}

func draw(t *testing.T, results ...Result) (d drawn) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, drawChart(&out, results))
	decoder := xml.NewDecoder(&out)
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			d.element(token)
		case xml.CharData:
			d.text += string(token)
		}
	}
}

func (d *drawn) element(e xml.StartElement) {
	d.elements = append(d.elements, e.Name.Local)
	attributes := map[string]string{}
	for _, a := range e.Attr {
		attributes[a.Name.Local] = a.Value
	}
	switch attributes["class"] {
	case "bar":
		d.bars = append(d.bars, attributes)
	case "goal":
		d.goals = append(d.goals, attributes)
	}
}

func ratio(name string, r float64) Result {
	return Result{Suite: "suite", Case: name, Unit: "msg/s", Value: 100 * r, Against: "other", Ratio: r}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return v
}

func TestChartHasOneBarForEachRatioThatHasAGoal(t *testing.T) {
	d := draw(t,
		ratio("faster", 4).atLeast(2),
		ratio("no goal", 3),
		Result{Suite: "suite", Case: "a time", Value: 7, Unit: "ms"}.atMost(10),
		ratio("slower", 0.5).atLeast(1))
	require.Len(t, d.bars, 2)
	require.Len(t, d.goals, 2)
	require.Contains(t, d.text, "suite: faster")
	require.Contains(t, d.text, "suite: slower")
	require.NotContains(t, d.text, "no goal")
	require.NotContains(t, d.text, "a time")
}

func TestChartTellsWhatIsMetByColourAndInWords(t *testing.T) {
	d := draw(t, ratio("good", 4).atLeast(2), ratio("bad", 1.5).atLeast(2), ratio("small enough", 0.5).atMost(1))
	require.NotEqual(t, d.bars[0]["fill"], d.bars[1]["fill"])
	require.Equal(t, d.bars[0]["fill"], d.bars[2]["fill"])
	require.Equal(t, 2, strings.Count(d.text, "goal 2: met")+strings.Count(d.text, "goal 1: met"))
	require.Contains(t, d.text, "1.50, goal 2: missed")
}

func TestChartGrowsAsFarToTheLeftForAHalfAsToTheRightForTwice(t *testing.T) {
	d := draw(t, ratio("twice", 2).atLeast(2), ratio("half", 0.5).atLeast(1))
	twice, half := d.bars[0], d.bars[1]
	require.InDelta(t, number(t, twice["width"]), number(t, half["width"]), 0.3)
	one := number(t, twice["x"])
	require.InDelta(t, one, number(t, half["x"])+number(t, half["width"]), 0.3)
	require.InDelta(t, one+number(t, twice["width"]), number(t, d.goals[0]["x1"]), 0.3, "the goal is at the bar's end")
	require.InDelta(t, one, number(t, d.goals[1]["x1"]), 0.3)
}

func TestChartKeepsAllWithinItsFrame(t *testing.T) {
	d := draw(t, ratio("huge", 5000).atLeast(20), ratio("tiny", 0.002).atLeast(1), ratio("one", 1).atLeast(90_000))
	for i := range d.bars {
		x, width := number(t, d.bars[i]["x"]), number(t, d.bars[i]["width"])
		require.Positive(t, width)
		require.GreaterOrEqual(t, x, float64(chartLeft))
		require.LessOrEqual(t, x+width, float64(chartRight))
		require.LessOrEqual(t, number(t, d.goals[i]["x1"]), float64(chartRight))
	}
}

func TestChartTakesAnyTextAndHasNoScript(t *testing.T) {
	name := `<script>alert("1")</script> & 'quotes' ]]>`
	d := draw(t, ratio(name, 4).atLeast(2))
	require.Contains(t, d.text, "suite: "+name)
	require.NotContains(t, d.elements, "script")
}

func TestChartHasNoPlaceForWhatIsNoRatio(t *testing.T) {
	d := draw(t, ratio("infinite", math.Inf(1)).atLeast(2), ratio("none", math.NaN()).atLeast(2),
		ratio("one", 1).atLeast(1))
	require.Len(t, d.bars, 1)
}

func TestChartOfNothingSaysSo(t *testing.T) {
	d := draw(t, ratio("no goal", 3))
	require.Empty(t, d.bars)
	require.Contains(t, d.text, "No ratio that has a goal was measured.")
}
