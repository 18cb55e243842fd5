package crashtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func failedResult() *Result {
	r := &Result{Seed: 7, Messages: 2, Planned: 9, Warnings: []string{"function shop.book asks the clock"},
		Tables:      []Table{{Name: "shop.accounts", Rows: 2}},
		Suggestions: []Suggestion{{Column: "shop.accounts.at", Fills: "the time"}, {Column: "shop.accounts.by"}},
		Again:       RunResult{Name: "without faults, with sequences elsewhere"},
		Runs: []RunResult{{Number: 1, Name: "copies", Seconds: 0.5}, {Number: 2, Name: string(crash), Seconds: 1,
			Faults: []Fault{{Number: 1, What: string(crash)}, {Number: 2, What: string(crash)}},
			Differences: []Difference{
				{Table: "shop.accounts", Kind: Changed, Row: []Cell{{"name", "al\x1b[2Jice"}},
					Changed: []Change{{"cents", "7", "14"}},
					Cause:   &Cause{Line: 2, ID: "p 2", Sent: []string{"pay/0@1", "pay/0@3"}, Faults: []int{2}}},
				{Table: "shop.accounts", Kind: Missing, Row: []Cell{{"name", "José"}, {"cents", ""}}}}}}}
	r.judge()
	return r
}

func TestTextSaysWhatDiffersOfWhichMessageAtWhichFault(t *testing.T) {
	text := failedResult().Text(func(seed uint64, run int) string { return fmt.Sprintf("again %d/%d", seed, run) })
	require.Equal(t, `warning: function shop.book asks the clock
Without any fault these columns differ between two runs, for no message determines them:
  --exclude shop.accounts.at   filled in by Postgres, from the time
  --exclude shop.accounts.by   filled in by the handler: should it be so?
run 2, Postgres crashed, 2 times: DIFFERS in 2 rows (1.0 s)
  shop.accounts: changed row name="al\x1b[2Jice"; cents is 14 and should be 7
    of line 2 of the sample, ID "p 2", sent to pay/0@1 and pay/0@3; it was not done yet at fault 2 (Postgres crashed)
  shop.accounts: missing row name=José cents=""
  repeat it: again 7/2
DIFFERS: 2 messages, 4 runs with 2 faults, in 0 s (seed 7)
`, text)
}

func TestVerdictIsNotTheSameWhileAnythingDiffers(t *testing.T) {
	for name, r := range map[string]*Result{
		"a column that is not excluded": {Suggestions: []Suggestion{{Column: "a.b.c"}}},
		"a second run without faults":   {Again: RunResult{Differences: []Difference{{}}}},
		"a run":                         {Runs: []RunResult{{}, {Differences: []Difference{{}}}}},
		"a run that was never done":     {Runs: []RunResult{{Undone: "2 messages left"}}},
	} {
		r.judge()
		require.False(t, r.Same, name)
		var b strings.Builder
		require.NoError(t, r.WriteJUnit(&b))
		require.Contains(t, b.String(), `failures="1"`, name)
	}
	same := &Result{Runs: []RunResult{{}, {}}}
	same.judge()
	require.True(t, same.Same)
}
