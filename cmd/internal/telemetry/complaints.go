package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// complaintPause is the time between two complaints.
const complaintPause = time.Minute

// complaints logs the SDK's errors, which come again with every export that fails: one a minute at most, and how many
// came before it.
type complaints struct {
	log *slog.Logger

	mu     sync.Mutex
	last   time.Time
	unsaid int
}

func newComplaints(log *slog.Logger) *complaints { return &complaints{log: log} }

// Handle makes it an otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && time.Since(c.last) < complaintPause {
		c.unsaid++
		return
	}
	c.log.Warn("metrics or traces were not sent; the program goes on", "error", err, "others_before", c.unsaid)
	c.last, c.unsaid = time.Now(), 0
}
