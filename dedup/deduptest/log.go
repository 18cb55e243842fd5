package deduptest

import (
	"strings"
	"sync"
)

// Log keeps what is written to it, and can be read meanwhile. The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
