package bench

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	docsPage  = "../../../docs/PERFORMANCE.md"
	docsChart = "../../../docs/bench.svg"
)

// The page has what was measured in the bench's own words, and the chart is drawn of these, so that suites which were
// measured one by one are in it. With FIRSTSEEN_UPDATE_GOLDEN set it is drawn anew.
func TestChartIsDrawnOfWhatTheDocsSay(t *testing.T) {
	page, err := os.ReadFile(docsPage)
	require.NoError(t, err)
	var chart bytes.Buffer
	require.NoError(t, drawChart(&chart, told(t, string(page))))
	if os.Getenv("FIRSTSEEN_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(docsChart, chart.Bytes(), 0o600))
	}
	drawn, err := os.ReadFile(docsChart)
	require.NoError(t, err)
	require.True(t, bytes.Equal(drawn, chart.Bytes()), "%s is not what %s says: make generate", docsChart, docsPage)
}

var (
	suiteWords = regexp.MustCompile(`^([a-z-]+): `)
	ratioWords = regexp.MustCompile(`^  (\S.*?)  +\S.*?  +([\d.]+) x (.+?)  \[goal ([\d.]+): (met|missed)\]$`)
)

// told are the ratios with goals of the table that a page has, as printRow has written them.
func told(t *testing.T, page string) (results []Result) {
	suite := ""
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if words := suiteWords.FindStringSubmatch(line); words != nil {
			suite = words[1]
		}
		words := ratioWords.FindStringSubmatch(line)
		if words == nil {
			continue
		}
		ratio, err := strconv.ParseFloat(words[2], 64)
		require.NoError(t, err)
		goal, err := strconv.ParseFloat(words[4], 64)
		require.NoError(t, err)
		r := Result{Suite: suite, Case: words[1], Against: words[3], Ratio: ratio}
		results = append(results, r.goal(goal, words[5] == "met"))
	}
	return results
}

func TestRatiosAreReadAsTheyArePrinted(t *testing.T) {
	var page strings.Builder
	page.WriteString("http: requests\n")
	want := []Result{ratio("p50, a case with a name that is long, 64 clients", 2.5).atMost(1.25),
		ratio("short", 73.25).atLeast(20)}
	printRow(&page, Result{Case: "no ratio", Value: 7, Unit: "ms"}.atMost(10))
	printRow(&page, ratio("no goal", 3))
	for i := range want {
		printRow(&page, want[i])
		want[i] = Result{Suite: "http", Case: want[i].Case, Against: "other", Ratio: want[i].Ratio}.
			goal(*want[i].Goal, *want[i].Met)
	}
	require.Equal(t, want, told(t, page.String()))
}
