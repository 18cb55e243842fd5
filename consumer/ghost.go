package consumer

import (
	"context"
	"errors"
	"sync"

	"github.com/segmentio/kafka-go"

	"github.com/firstseen/firstseen/consumer/internal/wait"
)

// ghost is this process's last membership of the group after kafka-go has forgotten it, which it does when the brokers
// are away: it joins again as somebody else, and the group would wait for the old member until its session is over.
// Telling the group that the old member is gone takes the session's length off every outage of Kafka.
type ghost struct {
	member string // of the last generation; empty: none
	stop   context.CancelFunc
	expels sync.WaitGroup
}

// appear begins to expel the member, once, until it is done or laid.
func (g *ghost) appear(ctx context.Context, c *Consumer, cause error) {
	if g.member == "" || g.stop != nil || errors.Is(cause, kafka.RebalanceInProgress) { // then kafka-go goes on as the member
		return
	}
	ctx, g.stop = context.WithCancel(ctx)
	g.expels.Go(func() {
		for retry := wait.NewBackoff(); ctx.Err() == nil; retry.Wait(ctx) {
			if c.wire.LeaveGroup(ctx, c.cfg.Group, g.member) == nil {
				return
			}
		}
	})
}

// lay ends the ghost: there is a new membership, or none is wanted any more.
func (g *ghost) lay(member string) {
	if g.stop != nil {
		g.stop()
		g.expels.Wait()
	}
	g.member, g.stop = member, nil
}
