package wire

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
)

// cutter dials connections that a test can cut.
type cutter struct {
	// answers counts down the large answers that are cut in their middle.
	answers atomic.Int32
	// refused has no connection made.
	refused atomic.Bool
	mutex   sync.Mutex
	open    []net.Conn
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.refused.Load() {
		return nil, syscall.ECONNREFUSED
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.open = append(c.open, conn)
	return &cutConn{Conn: conn, cutter: c}, nil
}

// closeAll is what an idle timeout, or a restart, of the broker does to pooled connections.
func (c *cutter) closeAll() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, conn := range c.open {
		conn.(*net.TCPConn).CloseRead()
	}
	c.open = nil
}

type cutConn struct {
	net.Conn
	cutter *cutter
}

// Read cuts the connection where an answer asks for more than fits in the transport's buffer.
func (c *cutConn) Read(b []byte) (int, error) {
	if len(b) > 50_000 && c.cutter.answers.Add(-1) >= 0 {
		c.Conn.Read(b[:1000])
		c.Close()
		return 1000, io.EOF
	}
	return c.Conn.Read(b)
}

func onCutBrokers(t *testing.T, test func(t *testing.T, w *testWire, c *cutter)) {
	t.Helper()
	run := func(name string, addr func(t testing.TB) string) {
		t.Run(name, func(t *testing.T) {
			c := &cutter{}
			test(t, newTestWire(t, addr(t), &kafka.Transport{Dial: c.dial}), c)
		})
	}
	run("fake", func(t testing.TB) string { return consumertest.NewFake(t).Addr })
	run("kafka", consumertest.Kafka)
}

func TestFetchRecoversFromAConnectionCutInAnAnswer(t *testing.T) {
	onCutBrokers(t, func(t *testing.T, w *testWire, c *cutter) {
		topic := w.topic(t)
		sent := values(string(make([]byte, 200_000)))
		produce(t, w.client(t, topic, kgo.ProducerBatchCompression(kgo.NoCompression())), sent...)
		leader, part := w.at(t, topic, 0)

		c.answers.Store(1)
		got, err := w.one(t.Context(), leader, part, eager)
		require.NoError(t, err, "it is tried again")
		requireSame(t, sent, got.Records)

		c.answers.Store(maxTries)
		_, err = w.one(t.Context(), leader, part, eager)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "but not for ever")
		require.ErrorContains(t, err, "from broker")

		got, err = w.one(t.Context(), leader, part, eager)
		require.NoError(t, err)
		requireSame(t, sent, got.Records)
	})
}

func TestBrokersAreKnownAtOnceAfterAStartInAnOutage(t *testing.T) {
	onCutBrokers(t, func(t *testing.T, w *testWire, c *cutter) {
		w.transport.MetadataTTL = time.Hour
		topic := w.topic(t)
		c.refused.Store(true)
		_, err := w.Metadata(t.Context(), []string{topic})
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = w.Versions(t.Context(), 1)
		require.ErrorIs(t, err, kerr.BrokerNotAvailable)

		c.refused.Store(false)
		produce(t, w.client(t, topic), values("a")...)
		leader, part := w.at(t, topic, 0)
		got, err := w.one(t.Context(), leader, part, eager)
		require.NoError(t, err)
		require.Len(t, got.Records, 1)
	})
}

func TestEveryCallOutlivesAStaleConnection(t *testing.T) {
	onCutBrokers(t, func(t *testing.T, w *testWire, c *cutter) {
		topic := w.topic(t)
		produce(t, w.client(t, topic), values("a")...)
		parts := []TopicPartition{{topic, 0}}
		leader, part := w.at(t, topic, 0)
		for name, call := range map[string]func() error{
			"metadata":  func() error { _, err := w.Metadata(t.Context(), []string{topic}); return err },
			"fetch":     func() error { _, err := w.one(t.Context(), leader, part, eager); return err },
			"list":      func() error { _, err := w.ListOffsets(t.Context(), parts, LatestOffset); return err },
			"committed": func() error { _, err := w.CommittedOffsets(t.Context(), topic, parts); return err },
		} {
			require.Eventually(t, func() bool { return call() == nil }, waitLimit, waitTick, name)
			c.closeAll()
			require.NoError(t, call(), name)
		}
	})
}

func TestAnAnswerBeyondTheLimitIsRefused(t *testing.T) {
	onBrokers(t, func(t *testing.T, w *testWire) {
		topic := w.topic(t)
		produce(t, w.client(t, topic, kgo.ProducerBatchCompression(kgo.NoCompression())), values(string(make([]byte,
			500_000)))...)
		leader, part := w.at(t, topic, 0)
		limits := w.limits
		w.limits.batchBytes = 100_000
		opts := eager
		opts.MaxBytes = 1000
		var err error
		grown := wiretest.Allocated(func() { _, err = w.one(t.Context(), leader, part, opts) })
		require.ErrorContains(t, err, "the limit is 101000")
		require.ErrorContains(t, err, "from broker")
		if w.fake == nil { // kfake allocates in this process
			require.Less(t, grown, 400_000)
		}
		w.limits = limits
		got, err := w.one(t.Context(), leader, part, opts)
		require.NoError(t, err)
		require.Len(t, got.Records, 1)
	})
}

func TestACallEndsWithItsContextAndItsTimeout(t *testing.T) {
	w := newFakeWire(t)
	leader, part := w.at(t, w.topic(t), 0)
	long := eager
	long.MaxWait = waitLimit
	ctx, cancel := context.WithTimeout(t.Context(), waitTick)
	defer cancel()
	_, err := w.one(ctx, leader, part, long)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestARequestThatTheBrokerIsTooOldForSaysSo(t *testing.T) {
	old := kversion.V0_10_2()
	w := newFakeWire(t, kfake.MaxVersions(old))
	_, err := w.Metadata(t.Context(), []string{"orders"})
	require.ErrorIs(t, err, kerr.UnsupportedVersion)
	require.ErrorContains(t, err, "Metadata")
	require.ErrorContains(t, err, "orders")
}

func TestAWireLearnsThatABrokerWasReplacedByAnOlderOne(t *testing.T) {
	w := newFakeWire(t)
	topic := w.topic(t)
	leader, part := w.at(t, topic, 0)
	_, err := w.one(t.Context(), leader, part, eager)
	require.NoError(t, err)

	var asked []int16
	w.fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.KeepControl()
		asked = append(asked, r.GetVersion())
		if r.GetVersion() > 11 {
			return nil, syscall.EPROTO, true // kfake closes the connection, as Kafka does
		}
		return nil, nil, false
	})
	w.fake.ControlKey(int16(kmsg.ApiVersions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.KeepControl()
		answer := r.ResponseKind().(*kmsg.ApiVersionsResponse)
		answer.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: int16(kmsg.Fetch), MaxVersion: 11}}
		return answer, nil, true
	})
	_, err = w.one(t.Context(), leader, part, eager)
	require.NoError(t, err)
	require.Equal(t, []int16{13, 11}, asked)
}
