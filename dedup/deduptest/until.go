package deduptest

import (
	"testing"
	"time"
)

// UntilDone waits until what it looks at is done, for as long as that changes at least once within a time, and fails
// the test then: how much there is to do, and how slow the machine is, are nothing that a test is about.
func UntilDone(t testing.TB, patience time.Duration, message string, look func() (state string, done bool)) {
	t.Helper()
	last, since := "", time.Now()
	for state, done := look(); !done; state, done = look() {
		if state != last {
			last, since = state, time.Now()
		}
		if time.Since(since) >= patience {
			t.Fatalf("%s; for %s it has stood at %s", message, patience, state)
		}
		time.Sleep(pollTick)
	}
}

// pollTick is between two looks.
const pollTick = 20 * time.Millisecond
