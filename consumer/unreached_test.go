package consumer_test

import (
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// newRemoteStage is a stage whose broker is somewhere, perhaps.
func newRemoteStage(t *testing.T, addr string) *stage {
	t.Helper()
	db := deduptest.New(t)
	return &stage{t: t, addr: addr, partitions: 1, topic: consumertest.Name(t), group: consumertest.Name(t),
		dsn: db.DSN, pool: db.Pool}
}

func TestWhatKeepsItFromTheClusterIsSaidOnceAndThatItIsBack(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := newRemoteStage(t, l.Addr().String())
	book, _ := s.noticed(nil) // it accepts, and says nothing
	s.logged(book, slog.LevelError, "waiting: Kafka does not answer", "reason", "does not answer: it is no Kafka", "group", s.group)
	require.NoError(t, l.Close())
	consumertest.NewFake(t, kfake.Ports(l.Addr().(*net.TCPAddr).Port), kfake.NumBrokers(1), kfake.SeedTopics(1, s.topic))
	s.logged(book, slog.LevelInfo, "goes on again", "hold", "kafka", "group", s.group)
	require.LessOrEqual(t, complaints(book), 2, "not at each try")
}

func TestAdvertisedAddressThatCantBeReachedIsSaidOnce(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	s := newRemoteStage(t, fake.Addr)
	consumertest.CreateTopic(t, s.addr, s.topic, 1)
	fake.Cluster.ControlKey(int16(kmsg.FindCoordinator), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		answer := r.ResponseKind().(*kmsg.FindCoordinatorResponse)
		answer.NodeID, answer.Host, answer.Port = 7, "kafka.invalid", 9092
		return answer, nil, true
	})
	fake.Cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		if r.GetVersion() != 1 { // the consumer's own, for which it would need no other address
			return nil, nil, false
		}
		answer := r.ResponseKind().(*kmsg.MetadataResponse)
		answer.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 7, Host: "kafka.invalid", Port: 9092}}
		return answer, nil, true
	})
	book, _ := s.noticed(func(*consumer.Config) {})
	s.logged(book, slog.LevelError, "waiting: Kafka does not answer", "reason", "advertised.listeners", "group", s.group)
	lasts()
	require.LessOrEqual(t, complaints(book), 2, "not at each try")
}
