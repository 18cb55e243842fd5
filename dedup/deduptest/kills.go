package deduptest

import (
	"os"
	"strconv"
	"testing"
)

// Kills counts the kills that a test makes of what it tests: FIRSTSEEN_TEST_KILLS, or otherwise where that is not set.
func Kills(t testing.TB, otherwise int) int {
	t.Helper()
	text := os.Getenv("FIRSTSEEN_TEST_KILLS")
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("FIRSTSEEN_TEST_KILLS: %v", err)
	}
	return n
}
