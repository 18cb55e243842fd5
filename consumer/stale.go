package consumer

import (
	"context"
	"errors"
	"sync"

	"github.com/segmentio/kafka-go"

	"github.com/firstseen/firstseen/dedup/wait"
)

// staleMember is this process's last membership of the group after kafka-go has forgotten it, which it does when the
// brokers are away: it joins again as somebody else, and the group would wait for the old member until its session
// is over. Telling the group that the old member is gone takes the session's length off every outage of Kafka.
type staleMember struct {
	id       string // of the last generation; empty: none
	stop     context.CancelFunc
	expelled sync.WaitGroup
}

// expel begins to take the member out of the group, once, and goes on until that is done or replace is called.
func (m *staleMember) expel(ctx context.Context, c *Consumer, cause error) {
	// then kafka-go goes on as the member
	if m.id == "" || m.stop != nil || errors.Is(cause, kafka.RebalanceInProgress) {
		return
	}
	ctx, m.stop = context.WithCancel(ctx)
	m.expelled.Go(func() {
		for retry := wait.NewBackoff(); ctx.Err() == nil; retry.Wait(ctx) {
			if c.wire.LeaveGroup(ctx, c.cfg.Group, m.id) == nil {
				return
			}
		}
	})
}

// replace ends expel: there is a new membership, or none is wanted any more.
func (m *staleMember) replace(id string) {
	if m.stop != nil {
		m.stop()
		m.expelled.Wait()
	}
	m.id, m.stop = id, nil
}
