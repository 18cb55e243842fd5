package ingress

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup"
)

// backlogCheck is the time between two counts.
const backlogCheck = 2 * time.Second

// backlog says whether too many of a topic's messages that came by HTTP are parked. That refuses new ones: nothing
// else would, for these come from no partition that a consumer could hold. It is safe for concurrent use.
type backlog struct {
	store *dedup.Store
	topic string
	most  int
	log   *slog.Logger

	mu      sync.Mutex
	counted time.Time
	over    bool
}

// full says that there were more than may be, when they were counted last. One request counts, while others go by what
// was found before. A count that fails holds nobody up: what comes next meets the same trouble, and says so.
func (b *backlog) full(ctx context.Context) bool {
	b.mu.Lock()
	due := time.Since(b.counted) >= backlogCheck
	if due {
		b.counted = time.Now()
	}
	over := b.over
	b.mu.Unlock()
	if !due {
		return over
	}
	n, err := b.store.Unfinished(ctx, b.topic, noPartition, b.most+1)
	over = err == nil && n > b.most
	b.mu.Lock()
	changed := b.over != over
	b.over = over
	b.mu.Unlock()
	if changed {
		b.tell(ctx, over)
	}
	return over
}

// tell says when new messages begin to be refused, and when they are taken again.
func (b *backlog) tell(ctx context.Context, over bool) {
	level, text := slog.LevelInfo, "new messages are taken again"
	if over {
		level, text = slog.LevelWarn, "new messages are refused: too many are parked"
	}
	b.log.Log(ctx, level, text, "topic", b.topic, "max_parked", b.most)
}
