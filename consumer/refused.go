package consumer

import (
	"fmt"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/holding"
)

// OutOfRange finds out why there is nothing at a partition's offset, and acts by policy.
func (s *session) OutOfRange(p *fetch.Partition) {
	at, first, ok := s.fetching.FirstLeft(p)
	switch {
	case !ok:
	case at >= first:
		s.refused(p, fmt.Errorf("partition %s ends below the position %d", p, at))
	case s.c.cfg.OnLoss == Continue:
		s.fetching.SkipLost(p, at, first)
	default:
		s.hold(p,
			holding.As(HeldLost, fmt.Errorf("messages %d to %d were deleted before they were read", at, first-1)))
	}
}

// Diverged finds out where the logs part.
func (s *session) Diverged(p *fetch.Partition, err error) {
	s.refused(p, fmt.Errorf("partition %s: %w", p, err))
}

// refused handles the answer of a leader that has nothing after what was read last. Where it only does not know that
// epoch the fetches go on without; else acquiring the partition anew finds out where the logs part, and decides by
// policy.
func (s *session) refused(p *fetch.Partition, reason error) {
	found, named, err := s.c.wire.Parted(s.ctx, p.TopicPartition, p.TopicID, p.Read())
	switch {
	case err != nil && s.ctx.Err() == nil:
		p.StopFor(holding.Kafka(err))
		p.BackOff(fetch.ErrorPause)
	case err != nil:
	case found == nil && !named:
		p.NameEpochs(false)
	default:
		s.fault(reason)
	}
}

// Undecodable keeps a partition from being fetched for a while.
func (s *session) Undecodable(p *fetch.Partition, offset int64, err error) {
	p.StopFor(holding.As(HeldUndecodable, err), "offset", offset)
	p.BackOff(10 * time.Second)
}

// hold stops a partition that only a person's decision can set going again. The others go on.
func (s *session) hold(p *fetch.Partition, reason error) {
	p.StopReading()
	p.StopFor(reason)
}
