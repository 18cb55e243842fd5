package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachRoundBeginsWithAnotherContender(t *testing.T) {
	var order []string
	named := func(name string, figure float64) contender {
		return contender{name, func() (float64, error) {
			order = append(order, name)
			return figure, nil
		}}
	}
	all, err := interleave(4, named("a", 1), named("b", 2), named("c", 3))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c", "b", "c", "a", "c", "a", "b", "a", "b", "c"}, order)
	require.Equal(t, map[string]series{"a": {1, 1, 1, 1}, "b": {2, 2, 2, 2}, "c": {3, 3, 3, 3}}, all)
}

func TestContenderThatFailsEndsTheRoundsAndIsNamed(t *testing.T) {
	broken := errors.New("broken")
	calls := 0
	_, err := interleave(3, contender{"a", func() (float64, error) { calls++; return 1, nil }},
		contender{"b", func() (float64, error) { return 0, broken }})
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "b: broken")
	require.Equal(t, 1, calls)
}

func TestRatioIsTheMedianOfTheRoundsRatios(t *testing.T) {
	// The machine was slow in the second round, for both; the medians' ratio would be 4.
	ours, theirs := series{100, 40, 90}, series{50, 20, 10}
	r := ours.against(theirs, "ours", "msg/s", "theirs")
	require.Equal(t,
		Result{Case: "ours", Value: 90, Low: 40, High: 100, Unit: "msg/s", Against: "theirs", Ratio: 2}, r)
}

func TestGoalIsForTheRatioWhereThereIsOneElseForTheValue(t *testing.T) {
	value, ratio := Result{Value: 5}, Result{Value: 5, Against: "other", Ratio: 0.5}
	for _, c := range []struct {
		r   Result
		met bool
	}{
		{value.atLeast(5), true}, {value.atLeast(5.1), false}, {value.atMost(5), true}, {value.atMost(4.9), false},
		{ratio.atLeast(0.5), true}, {ratio.atLeast(1), false}, {ratio.atMost(0.5), true}, {ratio.atMost(0.4), false},
	} {
		require.Equal(t, c.met, *c.r.Met, "%+v, goal %v", c.r, *c.r.Goal)
	}
	require.Nil(t, value.Met, "the result that a goal is set for is another")
}

func TestResultIsALineOfJSONWithTheseFields(t *testing.T) {
	var out bytes.Buffer
	l := &lab{suite: "accept", options: Options{Out: &bytes.Buffer{}, JSON: &out}}
	r := series{3, 1, 2}.against(series{1, 1, 1}, "a case", "ids/s", "raw COPY").atLeast(4)
	r.Note = "note"
	require.NoError(t, l.report(r))
	require.Equal(t,
		`{"suite":"accept","case":"a case","value":2,"low":1,"high":3,"unit":"ids/s","against":"raw COPY",`+
			`"ratio":2,"goal":4,"met":false,"note":"note"}`+"\n", out.String())
	out.Reset()
	require.NoError(t, l.report(series{3}.result("alone", "s")))
	var fields map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &fields))
	require.Equal(t, []string{"case", "high", "low", "suite", "unit", "value"}, slices.Sorted(maps.Keys(fields)))
	require.Len(t, l.results, 2)
}

func TestRowSaysWhatWasMeasuredAndWhetherItIsEnough(t *testing.T) {
	var out bytes.Buffer
	r := Result{Case: "firstseen", Value: 61234, Low: 50_000, High: 70_000, Unit: "msg/s",
		Against: "by hand", Ratio: 21.04, Note: "a note"}
	printRow(&out, r.atLeast(20))
	printRow(&out, Result{Case: "p99", Value: 12.345, Low: 12.345, High: 12.345, Unit: "ms"}.atMost(10))
	require.Equal(t, "  firstseen                       61.2k msg/s (50.0k to 70.0k)      21.04 x by hand  [goal 20: "+
		"met]\n      a note\n  p99                             12.35 "+
		"ms                            [goal 10: missed]\n", out.String())
}

func TestUnknownSuitesAreNamedAllAtOnce(t *testing.T) {
	_, err := choose(Options{Suites: []string{"end-to-end", "nothing", "more"}})
	require.ErrorContains(t, err, `no suite is called "nothing" or "more"; there are end-to-end`)
	require.NotContains(t, err.Error(), "\n")
}

func TestQuickLeavesOutWhatIsSlowUnlessAsked(t *testing.T) {
	all := func(o Options) (names []string) {
		chosen, err := choose(o)
		require.NoError(t, err)
		for _, s := range chosen {
			names = append(names, s.name)
		}
		return names
	}
	known, _ := Names()
	require.Equal(t, known, all(Options{}))
	quick := all(Options{Quick: true})
	for _, s := range suites {
		require.Equal(t, !s.slow, slices.Contains(quick, s.name), s.name)
		require.Equal(t, []string{s.name}, all(Options{Quick: true, Suites: []string{s.name}}))
	}
}
