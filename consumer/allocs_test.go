package consumer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/memory"
)

// pipe takes record sets the way from the decoder through a partition's buffer to its worker's messages.
type pipe struct {
	t      testing.TB
	wire   *wire.Client
	worker *worker
	claims int // of the last set
}

func newPipe(t testing.TB) *pipe {
	t.Helper()
	rule, err := identity.NewRule()
	require.NoError(t, err)
	topic := Topic{Name: "orders", Identity: rule}
	return &pipe{t: t, wire: wire.New(nil, nil, "", 0), worker: &worker{partition: fetch.NewPartition(
		wire.TopicPartition{Topic: "orders", Partition: 3}, wire.Topic{}, topic.message()),
		session: &session{ctx: t.Context(), c: &Consumer{memory: memory.New(1 << 30)}}}}
}

func (p *pipe) messages(set []byte) []dedup.Message {
	buffer := p.worker.partition
	d := p.wire.DecodeRecords(wire.FetchPartition{Topic: "orders", Partition: 3}, set, nil,
		wire.NewFixedRoom(4<<20), 0)
	if d.Err != nil {
		p.t.Fatal(d.Err)
	}
	buffer.ReadFrom(0, nil)
	p.claims = d.Costs.Total()
	buffer.Add(&d)
	defer buffer.Done(d.Next)
	p.worker.messages, p.worker.unread = nil, buffer.Take(len(d.Records), 1<<30)
	if err := p.worker.decode(1 << 30); err != nil {
		p.t.Fatal(err)
	}
	return p.worker.messages
}

// least is the least of some measurements, since other tests' goroutines allocate too.
func least[T int | float64](measure func() T) T {
	found := measure()
	for range 9 {
		found = min(found, measure())
	}
	return found
}

// requireAllocations checks how many allocations a message takes that comes in batches of some records.
func requireAllocations(t *testing.T, most float64, codec string, n, batches int) {
	t.Helper()
	var set []byte
	for i := range batches {
		set = append(set, wiretest.BatchOf(t, codec, int64(i*n), wiretest.Usual(n)...)...)
	}
	p := newPipe(t)
	require.Len(t, p.messages(set), n*batches)
	each := least(func() float64 { return testing.AllocsPerRun(10, func() { p.messages(set) }) }) / float64(n*batches)
	t.Logf("%s: %.3f allocations a message in batches of %d", codec, each, n)
	require.LessOrEqual(t, each, most)
}

func TestFetchedMessagesShareTheirAllocations(t *testing.T) {
	wiretest.SkipUnderRace(t)
	for _, codec := range []string{"none", "lz4", "zstd"} {
		requireAllocations(t, .1, codec, 1000, 1)
		requireAllocations(t, .5, codec, 20, 50)
		requireAllocations(t, 5.5, codec, 1, 200)
	}
}

func withHeaders(n int) kmsg.Record {
	r := kmsg.Record{Value: []byte("v")}
	for i := range n {
		r.Headers = append(r.Headers, kmsg.Header{Key: fmt.Sprint("h", i)})
	}
	return r
}

// What a batch claims is what its messages count for in the buffers.
func TestBatchClaimsAllThatItsMessagesTake(t *testing.T) {
	wiretest.SkipUnderRace(t)
	const n = 3000
	for name, headers := range map[string]func(i int) int{
		"no headers":     func(int) int { return 0 },
		"one each":       func(int) int { return 1 },
		"now and then":   func(i int) int { return i % 2 * 3 },
		"ever more":      func(i int) int { return i / 500 },
		"many at first":  func(i int) int { return max(0, 200-i*100) },
		"many in a few":  func(i int) int { return max(0, i%300-100) / 199 * 255 },
		"none but one's": func(i int) int { return i / (n - 1) * 300 },
	} {
		t.Run(name, func(t *testing.T) {
			rs := make([]kmsg.Record, n)
			for i := range rs {
				rs[i] = withHeaders(headers(i))
			}
			set, p := wiretest.BatchOf(t, "none", 0, rs...), newPipe(t)
			p.messages(set)
			took := least(func() int { return wiretest.Allocated(func() { p.messages(set) }) })
			t.Logf("%d bytes claimed; %d allocated", p.claims, took)
			require.Less(t, took, p.claims*12/10, "the allocator rounds up")
		})
	}
}
