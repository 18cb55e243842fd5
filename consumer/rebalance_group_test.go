package consumer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupAdmin looks into the stage's group and changes it, as Kafka's own tools do.
type groupAdmin struct {
	s      *stage
	client *kgo.Client
	admin  *kadm.Client
}

func (s *stage) groupAdmin() *groupAdmin {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	require.NoError(s.t, err)
	s.t.Cleanup(client.Close)
	return &groupAdmin{s: s, client: client, admin: kadm.NewClient(client)}
}

// describe gives the group's state, and the members by their client IDs.
func (g *groupAdmin) describe() (state string, members map[string]string) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	members = map[string]string{}
	all, err := g.admin.DescribeGroups(ctx, g.s.group)
	if err != nil {
		return "", members // there is none yet
	}
	described := all[g.s.group]
	for _, m := range described.Members {
		members[m.ClientID] = m.MemberID
	}
	return described.State, members
}

// removeAllBut has the coordinator forget members, dead or alive, as it does when their sessions time out.
func (g *groupAdmin) removeAllBut(keep ...string) {
	_, members := g.describe()
	for _, name := range keep {
		delete(members, name)
	}
	for _, id := range members {
		g.remove(id)
	}
}

func (g *groupAdmin) remove(memberID string) {
	g.s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group = g.s.group
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = memberID
	request.Members = []kmsg.LeaveGroupRequestMember{member}
	answer, err := request.RequestWith(ctx, g.client)
	require.NoError(g.s.t, err)
	require.NoError(g.s.t, kerr.ErrorForCode(answer.ErrorCode))
}

// awaitStable waits until exactly these members have their partitions.
func (g *groupAdmin) awaitStable(names ...string) {
	g.s.t.Helper()
	require.Eventually(g.s.t, func() bool {
		state, members := g.describe()
		for _, name := range names {
			if members[name] == "" {
				return false
			}
		}
		return state == "Stable" && len(members) == len(names)
	}, 3*time.Minute, 20*time.Millisecond, "the group did not settle on %v", names)
}

// awaitEmpty waits until the members' sessions have timed out.
func (g *groupAdmin) awaitEmpty() {
	g.s.t.Helper()
	require.Eventually(g.s.t, func() bool {
		_, members := g.describe()
		return len(members) == 0
	}, 3*time.Minute, 100*time.Millisecond, "the group did not give its members up")
}

func (g *groupAdmin) committed() map[int32]int64 {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	offsets := map[int32]int64{}
	all, err := g.admin.FetchOffsets(ctx, g.s.group)
	if err != nil {
		return offsets
	}
	all.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			offsets[o.Partition] = o.At
		}
	})
	return offsets
}

func (g *groupAdmin) reset(to int64) {
	g.s.t.Helper()
	offsets := kadm.Offsets{}
	for p := range g.s.partitions {
		offsets.AddOffset(g.s.topic, int32(p), to, -1)
	}
	require.Eventually(g.s.t, func() bool {
		return g.admin.CommitAllOffsets(context.Background(), g.s.group, offsets) == nil
	}, 3*time.Minute, 50*time.Millisecond, "the group's offsets could not be reset")
}

// watchOffsets looks at the group's offsets every 50 ms until the returned function is called, which gives
// every move back.
func (g *groupAdmin) watchOffsets() (stop func() (drops []string)) {
	done, ended := make(chan struct{}), make(chan []string, 1)
	go func() {
		highest := map[int32]int64{}
		var drops []string
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			for p, at := range g.committed() {
				if at < highest[p] {
					drops = append(drops, fmt.Sprintf("partition %d: from %d to %d", p, highest[p], at))
				}
				highest[p] = max(highest[p], at)
			}
			select {
			case <-done:
				ended <- drops
				return
			case <-tick.C:
			}
		}
	}()
	return sync.OnceValue(func() []string { close(done); return <-ended })
}

// load produces until it is stopped.
type load struct {
	t       testing.TB
	stop    chan struct{}
	ended   chan struct{}
	made    []*kgo.Record // one for each ID
	produce func(...*kgo.Record) error
}

// load starts to produce small portions at an interval: new messages, some twice side by side, and some of
// the earlier ones again.
func (s *stage) load(portion int, interval time.Duration) *load {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.ProducerLinger(0))
	require.NoError(s.t, err)
	l := &load{t: s.t, stop: make(chan struct{}), ended: make(chan struct{}), produce: func(rs ...*kgo.Record) error {
		return client.ProduceSync(context.Background(), rs...).FirstErr()
	}}
	s.t.Cleanup(func() { l.unique(); client.Close() })
	go func() {
		defer close(l.ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for n := 0; ; n++ {
			if err := l.produce(l.portion(s.records(portion, 40), n)...); err != nil {
				s.t.Errorf("produce: %v", err)
				return
			}
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return l
}

// portion adds to new records a twin of each fifth, and some that were there before.
func (l *load) portion(fresh []*kgo.Record, n int) []*kgo.Record {
	var out []*kgo.Record
	for i, r := range fresh {
		out = append(out, r)
		if i%5 == 0 {
			out = append(out, again(r))
		}
	}
	for i := 0; i < len(fresh)/5 && len(l.made) > 0; i++ {
		out = append(out, again(l.made[(n*7919+i*104729)%len(l.made)]))
	}
	l.made = append(l.made, fresh...)
	return out
}

// again is the same message as another record.
func again(r *kgo.Record) *kgo.Record {
	return &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
}

// unique ends the production and gives the number of IDs.
func (l *load) unique() int {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	<-l.ended
	return len(l.made)
}
