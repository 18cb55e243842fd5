package consumer

import (
	"time"

	"github.com/firstseen/firstseen/consumer/internal/wire"
)

// listen asks how far the partitions go that no fetch has told of for a while, as they are held, paused, or have no room:
// their lag grows all the same.
func (s *session) listen() {
	var unheard []wire.TopicPartition
	for tp, p := range s.partitions {
		if p.isUnheard(s.c.cfg.MetadataInterval) {
			unheard = append(unheard, tp)
		}
	}
	if len(unheard) == 0 {
		return
	}
	ends, err := s.c.wire.ListOffsets(s.ctx, unheard, wire.LatestOffset)
	if err != nil && s.ctx.Err() == nil {
		s.log.Debug("ends of partitions that are not fetched not looked up", "error", err)
	}
	for tp, end := range ends {
		s.partitions[tp].heardOf(end)
	}
}

// isUnheard says whether no answer has told of the partition's end for so long.
func (p *partition) isUnheard(long time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.heard) >= long
}

// heardOf takes in the last stable offset.
func (p *partition) heardOf(lastStable int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard, p.lastStable, p.highWatermark = time.Now(), lastStable, max(lastStable, p.highWatermark)
}
