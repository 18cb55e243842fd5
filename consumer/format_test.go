package consumer_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/schemas"
)

const orderSchema = `{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]}`

// written is an order, written by a schema, in Confluent's frame.
func written(t *testing.T, schema uint32, id int64) []byte {
	t.Helper()
	value, err := avro.MustParse(orderSchema).Encode(map[string]any{"id": id, "item": "pears"})
	require.NoError(t, err)
	return append(binary.BigEndian.AppendUint32([]byte{0}, schema), value...)
}

// registry knows the schemas 1 and 2, unless it is down.
func registry(t *testing.T) (r *schemas.Registry, down *atomic.Bool) {
	t.Helper()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	for id := range 2 {
		fake.SeedSchema("orders-value", id+1, id+1, sr.Schema{Schema: orderSchema, Type: sr.TypeAvro})
	}
	down = new(atomic.Bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		http.Redirect(w, q, fake.URL()+q.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	r, err := schemas.New(schemas.Config{URL: server.URL})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r, down
}

// booking has a function in Postgres take the orders of a topic whose IDs are in its values.
func (s *stage) booking(r *schemas.Registry) func(*consumer.Config, *handlers.Config) {
	s.t.Helper()
	s.exec(`create table booked (message_id uuid, body jsonb)`)
	s.exec(`create function book(batch firstseen.message[]) returns void language sql as
		'insert into booked select m.id, firstseen.body(m) from unnest(batch) m'`)
	h, err := handlers.NewSQL(s.t.Context(), s.pool, "", "book")
	require.NoError(s.t, err)
	var source identity.Source
	require.NoError(s.t, source.UnmarshalText([]byte("json:/id")))
	rule, err := identity.NewRule(source)
	require.NoError(s.t, err)
	return func(cc *consumer.Config, hc *handlers.Config) {
		cc.Topics = []consumer.Topic{{Name: s.topic, Identity: rule, Format: r.Format(schemas.Confluent)}}
		require.NoError(s.t, hc.Handlers.Register("book", h, s.topic))
	}
}

func (s *stage) produceTo(partition int32, values ...[]byte) {
	s.t.Helper()
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: s.topic, Partition: partition, Value: v})
	}
	consumertest.ProduceTo(s.t, s.addr, records...)
}

func TestDecodedValuesAreWhatFunctionsAndIDsAreMadeOf(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	r, _ := registry(t)
	first := written(t, 1, 7)
	s.produceTo(0, first, written(t, 2, 7), written(t, 2, 8))
	stop := s.start(s.consumer(s.booking(r)))
	s.caughtUp()
	stop()
	require.Equal(t, 2, s.count(`select count(*) from booked`), "the ID is the same, whichever schema it is written by")
	require.Equal(t, 1, s.count(`select count(*) from booked where body = '{"id": 7, "item": "pears"}'`))
	require.Equal(t, 2, s.count(`select count(*) from firstseen.inbox where raw_id in ('7', '8')`))
	require.Equal(t, 1, s.count(`select count(*) from firstseen.inbox where payload = $1`, first), "stored are the bytes")
}

func TestAPartitionIsHeldWhileItsRegistryIsAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 2)
	r, down := registry(t)
	c := s.consumer(s.booking(r))
	stop := s.start(c)
	s.produceTo(0, written(t, 1, 1))
	s.caughtUp()
	down.Store(true)
	s.produceTo(0, written(t, 1, 2), written(t, 2, 3), written(t, 1, 4))
	s.produceTo(1, written(t, 1, 5))
	s.heldBy(consumer.HeldSchemas, 0)
	s.eventually(func() bool { return s.count(`select count(*) from booked`) == 3 },
		"what comes before goes on, and so does the other partition")
	require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
	down.Store(false)
	s.caughtUp()
	require.Empty(t, c.Status().Holds)
	stop()
	require.Zero(t, c.Memory().Used(), "what was decoded is given back")
	require.Equal(t, 5, s.count(`select count(distinct message_id) from booked`))
	require.Equal(t, 5, s.count(`select count(*) from booked`))
}

func TestWhatCannotBeDecodedIsADeadLetterThatSaysWhy(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	r, _ := registry(t)
	book := s.booking(r)
	stop := s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		book(cc, hc)
		cc.Topics[0].Identity, _ = identity.NewRule()
	}))
	named := func(id string, value []byte) *kgo.Record {
		return &kgo.Record{Topic: s.topic, Value: value, Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
	}
	consumertest.Produce(t, s.addr, named("good", written(t, 1, 1)), named("unknown", written(t, 9, 2)),
		named("short", written(t, 1, 3)[:6]), named("last", written(t, 1, 4)))
	s.settled()
	require.Equal(t, 2, s.count(`select count(*) from booked`))
	require.Equal(t, 1, s.count(`select count(*) from firstseen.dead_letters where reason = 'undecodable' and raw_id = 'unknown'
		and error like '%the schema registry does not know schema ID 9'`))
	require.Equal(t, 1, s.count(`select count(*) from firstseen.dead_letters where reason = 'undecodable' and raw_id = 'short'
		and error like '%it ends too early, at byte 1, in field item; by schema ID 1'`))
	stop()
}

// Parked messages are decoded again when their time has come, and wait for a registry that is away.
func TestParkedMessagesAreDecodedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	r, down := registry(t)
	resume := s.pause(dedup.Pause{Kind: dedup.PauseHandler, Handler: "book"})
	book := s.booking(r)
	stop := s.start(s.consumer(book))
	s.produceTo(0, written(t, 1, 1), written(t, 2, 2))
	s.caughtUp()
	require.Equal(t, 2, s.count(`select count(*) from firstseen.parked`))
	stop()

	down.Store(true)
	fresh, freshDown := registry(t) // knows no schema yet
	freshDown.Store(true)
	s.exec(`drop table booked; drop function book`)
	stop = s.start(s.consumer(s.booking(fresh)))
	resume()
	s.eventually(func() bool { return s.count(`select count(*) from firstseen.parked where reason = 'unavailable'`) > 0 },
		"it waits")
	require.Zero(t, s.count(`select count(*) from booked`))
	freshDown.Store(false)
	s.settled()
	stop()
	require.Equal(t, 2, s.count(`select count(*) from booked`))
	require.Zero(t, s.count(`select coalesce(sum(attempts), 0) from firstseen.inbox`), "no attempt was spent")
}

// A reader beside the group waits too, and decodes what it hands over.
func TestAReaderWaitsForARegistryThatIsAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	r, down := registry(t)
	down.Store(true)
	s.produceTo(0, written(t, 1, 1), written(t, 2, 2))
	book := &consumertest.Log{}
	reader, err := replay.NewReader(replay.ReaderConfig{Connection: consumer.Connection{Brokers: []string{s.addr}},
		Logger: book.Logger()})
	require.NoError(t, err)
	defer reader.Close()
	done := make(chan error, 1)
	var bodies []string
	go func() {
		done <- reader.Read(t.Context(), consumer.Topic{Name: s.topic, Format: r.Format(schemas.Confluent)},
			[]replay.Range{{To: 2}}, func(_ context.Context, page replay.Page) error {
				for i := range page.Messages {
					body, err := page.Messages[i].Body()
					if err != nil {
						return err
					}
					bodies = append(bodies, string(body))
				}
				return nil
			})
	}()
	s.logged(book, slog.LevelError, "waiting: "+holds.EntryOf(holds.Schemas).Means)
	down.Store(false)
	require.NoError(t, <-done)
	require.Equal(t, []string{`{"id":1,"item":"pears"}`, `{"id":2,"item":"pears"}`}, bodies)
}
