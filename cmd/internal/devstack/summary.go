package devstack

import (
	"encoding/json"
	"fmt"
)

// Summary has a run's counts, read with the consumer stopped.
type Summary struct {
	Produced int64 `json:"produced"` // messages that the broker confirmed, copies included
	Unique   int64 `json:"unique"`   // different movements among them
	// messages that committed transactions took, each as often as it was taken
	Received        int64 `json:"received"`
	New             int64 `json:"new"`              // rows in the inbox
	Duplicates      int64 `json:"duplicates"`       // received, less new
	Effects         int64 `json:"effects"`          // rows in movements
	Crashes         int   `json:"crashes"`          // deaths of the consumer that nobody asked it for
	Lag             int64 `json:"lag"`              // messages beyond the committed offsets
	Balance         int64 `json:"balance"`          // over all accounts
	ExpectedBalance int64 `json:"expected_balance"` // by the producer's ledger
	OK              bool  `json:"ok"`
}

// judge sets OK: nothing is missing, and nothing took effect twice.
func (s Summary) judge() Summary {
	s.OK = s.Effects == s.Unique && s.Balance == s.ExpectedBalance && s.Lag == 0
	return s
}

// String says the verdict in one sentence or two, a line each.
func (s Summary) String() string {
	switch {
	case s.Lag != 0:
		return fmt.Sprintf("NOT DONE: the consumer is still behind by %s of %s messages",
			commas(s.Lag), commas(s.Produced))
	case s.Effects != s.Unique:
		return fmt.Sprintf("WRONG: %s movements have %s effects", commas(s.Unique), commas(s.Effects))
	case s.Balance != s.ExpectedBalance:
		return fmt.Sprintf("WRONG: the balance is %s and should be %s", commas(s.Balance), commas(s.ExpectedBalance))
	}
	return fmt.Sprintf("OK: %s movements took effect once each, and the balance is %s, as expected.\n"+
		"    %s messages brought them, and were received %s times; the consumer %s.",
		commas(s.Unique), commas(s.Balance), commas(s.Produced), commas(s.Received), crashed(s.Crashes))
}

func crashed(n int) string {
	switch n {
	case 0:
		return "never crashed"
	case 1:
		return "crashed once"
	}
	return fmt.Sprintf("crashed %d times", n)
}

// JSON is the summary in one line.
func (s Summary) JSON() (string, error) {
	text, err := json.Marshal(s)
	return string(text), err
}
