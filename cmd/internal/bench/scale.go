package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	scalePartitions = 8
	membersLimit    = time.Minute
)

// scaled are numbers of instances, each with how many times one's rate it should reach.
var scaled = []struct {
	instances int
	goal      float64
}{{2, 1.8}, {4, 3.4}}

// scale has one, two and four instances, each a process, share a topic whose handler waits a millisecond for each
// message, one message at a time in each instance: neither the processors nor Postgres are what bounds them.
func scale(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	messages := l.pick(8000, 2000)
	contenders := []contender{l.instances(ctx, d, 1, messages)}
	for _, s := range scaled {
		contenders = append(contenders, l.instances(ctx, d, s.instances, messages))
	}
	all, err := interleave(l.pick(5, 2), contenders...)
	if err != nil {
		return err
	}
	one := all[instancesName(1)]
	results := []Result{one.result(instancesName(1), "msg/s")}
	for _, s := range scaled {
		name := instancesName(s.instances)
		r := all[name].against(one, name, "msg/s", instancesName(1)).atLeast(s.goal)
		r.Note = fmt.Sprintf("a handler that waits 1 ms a message, %d partitions, %d processors", scalePartitions,
			processors())
		results = append(results, r)
	}
	return l.report(results...)
}

func instancesName(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}

func (l *lab) instances(ctx context.Context, d *database, n, messages int) contender {
	return contender{instancesName(n), func() (float64, error) { return l.share(ctx, d, n, messages) }}
}

// share gives the rate of n instances, all of which have their partitions before the first message comes.
func (l *lab) share(ctx context.Context, d *database, n, messages int) (rate float64, err error) {
	spec := topicSpec{partitions: scalePartitions}
	topic, err := l.topic(ctx, spec)
	if err != nil {
		return 0, err
	}
	j := job{Topic: topic, Group: topic, Handler: "waiting", Wait: time.Millisecond, Messages: messages,
		Transactions: 1, Heartbeat: 200 * time.Millisecond}
	if j, err = l.on(ctx, d, j); err != nil {
		return 0, err
	}
	spec.messages = messages
	err = l.together(ctx, n, j, func(ctx context.Context) error {
		rate, err = l.fillAndTime(ctx, d, j, spec, n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return rate, d.expectInbox(ctx, topic, messages)
}

// fillAndTime waits for the members, and times from the first message's making, which takes a moment, to the last
// one's commit.
func (l *lab) fillAndTime(ctx context.Context, d *database, j job, spec topicSpec,
	members int) (rate float64, err error) {
	client, err := spec.prepared().client(j.Brokers)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	if err := awaitMembers(ctx, client, d, j.Group, members); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := spec.prepared().fill(ctx, client, j.Topic); err != nil {
		return 0, err
	}
	if err := d.awaitCount(ctx, j.Messages, through, j.Group); err != nil {
		return 0, err
	}
	return float64(j.Messages) / time.Since(start).Seconds(), nil
}

// equalOwners counts the processes that own so many positions of the consumer.
const equalOwners = `select count(*) from (select from firstseen.positions where consumer = $1 group by owner having count(owner) = $2) o`

// awaitMembers waits until the group is at rest with all members, and each of them owns its share of the positions.
func awaitMembers(ctx context.Context, client *kgo.Client, d *database, group string, members int) error {
	ctx, cancel := context.WithTimeout(ctx, membersLimit)
	defer cancel()
	err := every(ctx, 20*time.Millisecond, func() (bool, error) {
		groups, err := kadm.NewClient(client).DescribeGroups(ctx, group)
		g := groups[group]
		return g.State == "Stable" && len(g.Members) == members, err
	})
	if err != nil {
		return fmt.Errorf("wait for %d members of %s: %w", members, group, err)
	}
	return d.awaitCount(ctx, members, equalOwners, group, scalePartitions/members)
}
