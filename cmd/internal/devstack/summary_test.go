package devstack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunIsOKOnlyWhereNothingIsMissingAndNothingTookEffectTwice(t *testing.T) {
	good := Summary{
		Produced: 100, Unique: 70, Received: 130, New: 70, Duplicates: 60, Effects: 70, Crashes: 3,
		Balance: 1234, ExpectedBalance: 1234,
	}
	for name, c := range map[string]struct {
		spoil func(*Summary)
		says  string
	}{
		"all well":         {func(*Summary) {}, "OK: 70 movements"},
		"nothing produced": {func(s *Summary) { *s = Summary{} }, "OK: 0 movements"},
		"an effect twice": {func(s *Summary) { s.Effects, s.Balance = 71, 1300 },
			"WRONG: 70 movements have 71 effects"},
		"an effect missing": {func(s *Summary) { s.Effects, s.Balance = 69, 1200 },
			"WRONG: 70 movements have 69 effects"},
		"one missing and one twice": {func(s *Summary) { s.Balance = 1235 }, "WRONG: the balance is 1,235"},
		"not caught up": {func(s *Summary) { s.Lag = 1 },
			"NOT DONE: the consumer is still behind by 1 of 100 messages"},
		"not caught up, effects are few": {func(s *Summary) { s.Lag, s.Effects = 10, 60 },
			"NOT DONE: the consumer is still behind by 10 of 100 messages"},
	} {
		s := good
		c.spoil(&s)
		s = s.judge()
		require.Equal(t, c.says[:2] == "OK", s.OK, name)
		require.Contains(t, s.String(), c.says, name)
	}
}

func TestSummaryIsOneLineOfJSON(t *testing.T) {
	line, err := Summary{Produced: 3, Unique: 2, Received: 4, New: 2, Duplicates: 2, Effects: 2, Crashes: 1,
		Balance: -5, ExpectedBalance: -5}.judge().JSON()
	require.NoError(t, err)
	require.Equal(t, `{"produced":3,"unique":2,"received":4,"new":2,"duplicates":2,"effects":2,"crashes":1,"lag":0,`+
		`"balance":-5,"expected_balance":-5,"ok":true}`, line)
}
