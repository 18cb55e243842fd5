package consumer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

// keptRow is what is kept of a message, and where.
type keptRow struct {
	Table, Reason, RawID string
	Key, Payload         []byte
	Headers              []dedup.Header
}

func (s *stage) kept() (rows []keptRow) {
	s.t.Helper()
	found, err := s.pool.Query(s.t.Context(), `select place, reason, coalesce(raw_id, ''), key, payload, headers from (
			select 'inbox' as place, '' as reason, raw_id, key, payload, headers, topic, "partition", "offset" from firstseen.inbox
			union all
			select 'dead_letters', reason, raw_id, key, payload, headers, topic, "partition", "offset" from firstseen.dead_letters) m
		where topic = $1 order by "partition", "offset"`, s.topic)
	require.NoError(s.t, err)
	rows, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (r keptRow, err error) {
		var headers []byte
		if err = row.Scan(&r.Table, &r.Reason, &r.RawID, &r.Key, &r.Payload, &headers); err == nil {
			r.Headers, err = dedup.DecodeHeaders(headers)
		}
		return r, err
	})
	require.NoError(s.t, err)
	return rows
}

// odd is a record, and what must become of it.
type odd struct {
	record *kgo.Record
	reason identity.Reason
	rawID  string
}

func oddRecords() []odd {
	h := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	id := func(value string) kgo.RecordHeader { return h("message-id", value) }
	r := func(key, value []byte, headers ...kgo.RecordHeader) *kgo.Record {
		return &kgo.Record{Key: key, Value: value, Headers: headers}
	}
	key, null, empty, value := []byte("key"), []byte(nil), []byte{}, []byte("value")
	hex, twin := strings.Repeat("0a1b2c3d", 800), uuid.NewString()
	one, other := strings.Repeat("x", 299)+"1", strings.Repeat("x", 299)+"2"
	return []odd{
		{record: r(key, value, id("n1")), rawID: "n1"},
		{record: r(key, null, id("d1")), rawID: "d1"},
		{record: r(key, empty, id("d2")), rawID: "d2"},
		{record: r(key, []byte("null"), id("d3")), rawID: "d3"},
		{record: r(null, value, id("d4")), rawID: "d4"},
		{record: r(empty, value, id("d5")), rawID: "d5"},
		{record: r(key, null, id("m1"), h("trace", "a"), id("m2"), h("trace", "b")),
			reason: identity.ReasonAmbiguousID},
		{record: r(key, value, id(twin), id(twin))},
		{record: r(key, value, h("trace", "b"), id("t1"), h("trace", "a"), h("trace", "b"), h("", "\x00\xff"),
			kgo.RecordHeader{Key: "none"}, h("empty", "")), rawID: "t1"},
		{record: r(key, empty, h("trace", "a")), reason: identity.ReasonMissingID},
		{record: r(key, value, id(hex)), reason: identity.ReasonIDTooLong},
		{record: r(key, value, id(strings.Repeat("a", 10_000))), reason: identity.ReasonIDTooLong},
		{record: r(key, value, id(one)), rawID: one},
		{record: r(key, value, id(other)), rawID: other},
		{record: r(key, []byte("{\"a\":\"x\\u0000y\"}\x00\xff"), id("bytes")), rawID: "bytes"},
		{record: r(key, value, id("n2")), rawID: "n2"},
	}
}

// row is what must be kept.
func (o *odd) row() keptRow {
	row := keptRow{Table: "inbox", RawID: o.rawID, Reason: string(o.reason),
		Key: o.record.Key, Payload: o.record.Value}
	if o.reason != "" {
		row.Table = "dead_letters"
	}
	for _, h := range o.record.Headers {
		row.Headers = append(row.Headers, dedup.Header{Key: h.Key, Value: h.Value})
	}
	return row
}

func TestOddMessagesKeepTheirBytesAlsoAfterAReplay(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		group := s.groupAdmin()
		var want []keptRow
		dead := 0
		for _, o := range oddRecords() {
			o.record.Topic = s.topic
			consumertest.ProduceTo(t, addr, o.record)
			want = append(want, o.row())
			if o.reason != "" {
				dead++
			}
		}
		for range 2 { // at first, and again from the first offset on
			stop := s.start(s.consumer(nil))
			s.caughtUp()
			stop()
			require.Equal(t, want, s.kept())
			s.requireOnce(len(want) - dead)
			require.Equal(t, dead, s.count(`select count(*) from firstseen.dead_letters`))
			group.reset(0)
		}
	})
}

// A process that runs past midnight needs partitions that it did not make at its start.
func TestPartitionsOfTheInboxAreMadeWhileAConsumerRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	c := s.consumer(nil)
	consumer.MakePartitionsEvery(c, 10*time.Millisecond)
	s.start(c)
	const made = `select count(*) from pg_class where relnamespace = 'firstseen'::regnamespace and relname ~ '^inbox_\d+$' and relkind = 'r'`
	before := s.count(made)
	require.Greater(t, before, 1)
	_, err := s.pool.Exec(t.Context(),
		`do $$ begin execute 'drop table firstseen.' || (select max(relname) from pg_class
		where relnamespace = 'firstseen'::regnamespace and relname ~ '^inbox_\d+$' and relkind = 'r'); end $$`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.count(made) == before }, 3*time.Minute, 10*time.Millisecond)
}
