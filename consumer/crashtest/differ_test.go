package crashtest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func holding(rows ...[]string) *tables {
	return &tables{list: []*table{{name: "shop.accounts", key: []int{0}, rows: rows,
		columns: []column{{name: "name"}, {name: "cents"}, {name: "at", fills: "the time"}}}}}
}

func against(right *reference, has *tables) []Difference {
	t := &trial{holds: has, run: &RunResult{Faults: []Fault{{Number: 1, open: map[place]span{{"pay", 0}: {1, 2}}}}},
		s: &stack{config: &Config{Messages: []Message{{Topic: "pay", Key: []byte("bob"), Value: []byte(`{"c": 1.5}`)},
			{Topic: "pay", Key: []byte("alice"), Value: []byte(`{"to": ["alice"], "c": 7}`)}}}},
		sent:    []sending{{of: 0}, {of: 1}},
		records: []*kgo.Record{{Topic: "pay", Offset: 0}, {Topic: "pay", Offset: 1}}}
	return t.differences(right)
}

func TestRowsAreComparedAsOftenAsTheyAreThere(t *testing.T) {
	right := &reference{holds: holding([]string{"alice", "7", "now"}, []string{"bob", "1", "now"}),
		compared: compared{map[string]string{"shop.accounts.at": "asked for"}}}
	require.Empty(t, against(right, holding([]string{"bob", "1", "later"}, []string{"alice", "7", "later"})))

	twice := against(right, holding([]string{"alice", "7", ""}, []string{"alice", "7", ""}, []string{"bob", "1", ""}))
	require.Equal(t, []Difference{{Table: "shop.accounts", Kind: Extra, Row: []Cell{{"name", "alice"}, {"cents", "7"}},
		Cause: &Cause{Line: 2, Sent: []string{"pay/0@1"}, Faults: []int{1}}}}, twice)

	none := against(right, holding([]string{"alice", "7", ""}))
	require.Equal(t, []Difference{{Table: "shop.accounts", Kind: Missing,
		Row: []Cell{{"name", "bob"}, {"cents", "1"}}}}, none)

	other := against(right, holding([]string{"alice", null, ""}, []string{"bob", "1", ""}))
	require.Len(t, other, 1)
	require.Equal(t, Changed, other[0].Kind)
	require.Equal(t, []Change{{"cents", "7", "null"}}, other[0].Changed)
}

func TestColumnsThatDifferWithoutFaultsAreSuggestedAndNotComparedFromThenOn(t *testing.T) {
	right := &reference{holds: holding([]string{"alice", "7", "now"}), compared: compared{map[string]string{}}}
	again := holding([]string{"alice", "7", "later"})
	require.Equal(t, []Suggestion{{Column: "shop.accounts.at", Fills: "the time"}}, right.suggest(again))
	require.Empty(t, against(right, again))
	require.Empty(t, right.suggest(again), "once")
}
