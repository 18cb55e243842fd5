package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
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
		for retry := newBackoff(); ctx.Err() == nil; retry.wait(ctx) {
			if c.wire.leaveGroup(ctx, c.cfg.Group, g.member) == nil {
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

// leaveGroup takes a member out of its group. That it is not there is as good.
func (w *wire) leaveGroup(ctx context.Context, group, member string) error {
	coordinator, err := w.coordinator(ctx, group)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group, request.MemberID = group, member
	answer := kmsg.NewLeaveGroupResponse()
	if err := w.ask(ctx, call{broker: coordinator, request: request, min: 0, max: 2}, &answer); err != nil {
		return fmt.Errorf("leave group %s: %w", group, err)
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		return fmt.Errorf("leave group %s: %w", group, err)
	}
	return nil
}
