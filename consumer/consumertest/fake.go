package consumertest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fake is a broker in this process, for fast tests and for faults on demand.
type Fake struct {
	// Addr is the address of one of its nodes, host:port, which names the others.
	Addr string
	// Cluster makes the faults.
	Cluster *kfake.Cluster
}

// NewFake starts a fake cluster, of three nodes unless an option says otherwise. It is closed at the
// test's end.
func NewFake(t testing.TB, opts ...kfake.Opt) *Fake {
	t.Helper()
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatalf("consumertest: start kfake: %v", err)
	}
	t.Cleanup(cluster.Close)
	return &Fake{Addr: cluster.ListenAddrs()[0], Cluster: cluster}
}

// Met waits until a fault has answered n requests.
func Met(t testing.TB, h *kfake.FaultHandle, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := h.Wait(ctx, n); err != nil {
		t.Fatalf("consumertest: the broker was not asked for what it was to refuse: %v", err)
	}
}

// AnswerEpochs has a fake cluster answer every question for the end of a leader epoch with what ends gives for it: the
// last epoch up to it that the log has, and its end.
func AnswerEpochs(fake *kfake.Cluster, ends func(asked int32) (epoch int32, end int64)) {
	fake.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		request := r.(*kmsg.OffsetForLeaderEpochRequest)
		answer := request.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, t := range request.Topics {
			topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				partition := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				partition.Partition = p.Partition
				partition.LeaderEpoch, partition.EndOffset = ends(p.LeaderEpoch)
				topic.Partitions = append(topic.Partitions, partition)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
}
