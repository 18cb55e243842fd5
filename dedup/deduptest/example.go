package deduptest

import (
	"fmt"
	"testing"
)

// Example is as much of a test as an example needs. What fails says so in the example's output, and what can't go on
// panics.
type Example struct {
	testing.TB
	cleanups []func()
}

// Helper does nothing.
func (t *Example) Helper() {}

// Name is the same for every example.
func (t *Example) Name() string { return "Example" }

// Cleanup has End call f.
func (t *Example) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Errorf prints.
func (t *Example) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Fatalf panics.
func (t *Example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// End calls what Cleanup was given, the last first.
func (t *Example) End() {
	for i := range t.cleanups {
		t.cleanups[len(t.cleanups)-1-i]()
	}
}
