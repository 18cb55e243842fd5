package consumertest

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// Log keeps what is logged, entry by entry. The zero value is empty; it is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	entries []map[string]any
}

// Write takes one entry, as slog's JSON handler writes it.
func (l *Log) Write(line []byte) (int, error) {
	entry := map[string]any{}
	err := json.Unmarshal(line, &entry)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entry)
	return len(line), err
}

// Logger logs to it, and to the standard error too where FIRSTSEEN_TEST_LOG is set.
func (l *Log) Logger() *slog.Logger {
	var out io.Writer = l
	if os.Getenv("FIRSTSEEN_TEST_LOG") != "" {
		out = io.MultiWriter(l, os.Stderr)
	}
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Times counts the entries of a level whose message contains a text and whose attributes contain others, given as
// names and texts.
func (l *Log) Times(level slog.Level, message string, attrs ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range l.entries {
		found := entry["level"] == level.String() && strings.Contains(fmt.Sprint(entry["msg"]), message)
		for i := 0; i < len(attrs); i += 2 {
			found = found && strings.Contains(fmt.Sprint(entry[attrs[i]]), attrs[i+1])
		}
		if found {
			n++
		}
	}
	return n
}

// Has says whether there is such an entry.
func (l *Log) Has(level slog.Level, message string, attrs ...string) bool {
	return l.Times(level, message, attrs...) > 0
}
