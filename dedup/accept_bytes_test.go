package dedup_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/identity"
)

// awkward are messages whose bytes are easily lost.
func awkward() []dedup.Message {
	big := bytes.Repeat([]byte("\x00\xff\\'\"\n"), 1<<20/6)
	at := time.Date(2026, 2, 28, 23, 59, 59, 123456000, time.UTC)
	ms := []dedup.Message{
		{},
		{Key: []byte{}, Value: []byte{}, Headers: []dedup.Header{}},
		{Key: []byte("null"), Value: []byte("null"), Headers: []dedup.Header{{Key: "null", Value: []byte("null")}}},
		{Key: []byte{0}, Value: []byte{0, 0xff, '\\'}, Timestamp: at, Tenant: "tenant", RawID: "order-17 é '\\"},
		{Value: []byte(`{"a":"x\u0000y"}`)},
		{Headers: []dedup.Header{{Key: "trace", Value: []byte("b")}, {Key: "", Value: nil},
			{Key: "trace", Value: []byte("a")},
			{Key: "é", Value: []byte{}}, {Key: "bin", Value: []byte{0, 0xff}}}},
		{Key: big, Value: big, Headers: []dedup.Header{{Key: "big", Value: big}}},
		{Offset: math.MaxInt64, Partition: math.MaxInt32},
	}
	for i := range ms {
		ms[i].ID, ms[i].Topic = uuid.New(), "orders"
	}
	ms[len(ms)-1].Topic = ""
	return ms
}

func TestEveryByteIsKeptWhateverBecomesOfTheMessage(t *testing.T) {
	t.Parallel()
	for table, settle := range map[string]func(*dedup.Entry){
		"inbox":        func(*dedup.Entry) {},
		"parked":       func(e *dedup.Entry) { e.Park(0) },
		"dead_letters": func(e *dedup.Entry) { e.State, e.Reason = dedup.Dead, string(identity.ReasonMissingID) },
	} {
		t.Run(table, func(t *testing.T) {
			s := newStage(t)
			ms := awkward()
			b := &dedup.Batch{}
			for i := range ms {
				b.Entries = append(b.Entries, dedup.Entry{Scope: s.scope, Message: &ms[i], Lane: ms[i].ID})
				settle(&b.Entries[i])
			}
			require.Equal(t, repeat(isNew, len(ms)), s.accept(b))
			require.Equal(t, len(ms), s.count(`select count(*) from firstseen.`+table))
			for _, want := range ms {
				requireStored(t, s, table, want)
				requireHeadersInSQL(t, s, table, want)
			}
		})
	}
}

func requireStored(t *testing.T, s *stage, table string, want dedup.Message) {
	t.Helper()
	var got dedup.Message
	var raw *string
	var at *time.Time
	var headers []byte
	require.NoError(t, s.admin.QueryRow(t.Context(), `select message_id, raw_id, topic, "partition", "offset",
		produced_at, key, payload, headers from firstseen.`+table+` where message_id = $1`, want.ID).
		Scan(&got.ID, &raw, &got.Topic, &got.Partition, &got.Offset, &at, &got.Key, &got.Value, &headers))
	if at != nil {
		got.Timestamp = at.UTC()
	}
	got.RawID = text(raw)
	var err error
	got.Headers, err = dedup.DecodeHeaders(headers)
	require.NoError(t, err)
	want.Tenant = "" // is in the scope
	requireSame(t, want, got)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// requireSame keeps nil and empty apart, but for the list of headers.
func requireSame(t *testing.T, want, got dedup.Message) {
	t.Helper()
	if len(want.Headers) == 0 {
		want.Headers = nil
	}
	require.Equal(t, want, got)
}

func requireHeadersInSQL(t *testing.T, s *stage, table string, m dedup.Message) {
	t.Helper()
	rows, err := s.admin.Query(t.Context(), `select h.key, h.value from firstseen.`+table+` i,
		firstseen.decode_headers(i.headers) h where message_id = $1 order by h.ordinal`, m.ID)
	require.NoError(t, err)
	var got []dedup.Header
	var key, value []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		got = append(got, dedup.Header{Key: string(key), Value: value})
		key, value = nil, nil
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, len(m.Headers), len(got))
	for i := range got {
		require.Equal(t, m.Headers[i], got[i])
	}
}

func TestHeaderInSQLIsTheFirstOfItsName(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ms := []dedup.Message{{ID: uuid.New(), Topic: "orders", Value: []byte(`{"n": 1}`), Headers: []dedup.Header{
		{Key: "trace", Value: []byte("b")}, {Key: "trace", Value: []byte("a")}, {Key: "none", Value: nil}, {Key: "é",
			Value: []byte("ü")}}}}
	tx, err := s.store.Accept(t.Context(), &dedup.Batch{})
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	var trace, none, absent, unicode, n *string
	require.NoError(t, tx.Handler().QueryRow(t.Context(), `
		select firstseen.header(x, 'trace'), firstseen.header(x, 'none'), firstseen.header(x, 'absent'),
		       firstseen.header(x, 'é'), firstseen.body(x) ->> 'n'
		from (select row(m.id, m.raw_id, m.tenant, m.topic, m."partition", m."offset", m.produced_at, m.key, m.payload,
			m.headers)::firstseen.message x from `+dedup.UnnestColumns+`) s`, dedup.Columns(ms)...).
		Scan(&trace, &none, &absent, &unicode, &n))
	require.Equal(t, []string{"b", "ü", "1"}, []string{*trace, *unicode, *n})
	require.Nil(t, none)
	require.Nil(t, absent)
}

func TestColumnsKeepEveryByteInAllQueryModes(t *testing.T) {
	t.Parallel()
	base := newStage(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			pool := deduptest.OpenPool(t, base.dsn+"&default_query_exec_mode="+mode, nil)
			store, err := dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test"})
			require.NoError(t, err)
			tx, err := store.Accept(t.Context(), &dedup.Batch{})
			require.NoError(t, err)
			defer tx.Rollback(t.Context())
			extremes := make([]dedup.Message, 4)
			for i, at := range []time.Time{time.Date(1, 1, 1, 0, 0, 0, 1e6, time.UTC),
				time.Date(999, 2, 28, 1, 2, 3, 4000, time.UTC),
				time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC),
				time.Date(1969, 7, 20, 0, 0, 0, 1000, time.UTC)} {
				extremes[i].Timestamp = at
			}
			for _, ms := range [][]dedup.Message{extremes, awkward(), nil, awkward()[:1]} {
				require.Equal(t, len(ms), requireColumns(t, tx.Handler(), ms))
			}
		})
	}
}

func requireColumns(t *testing.T, tx pgx.Tx, ms []dedup.Message) (n int) {
	t.Helper()
	rows, err := tx.Query(t.Context(), `select * from `+dedup.UnnestColumns+` order by ordinal`, dedup.Columns(ms)...)
	require.NoError(t, err)
	defer rows.Close()
	for ; rows.Next(); n++ {
		var got dedup.Message
		var raw *string
		var at *time.Time
		var headers []byte
		var ordinal int
		require.NoError(t, rows.Scan(&got.ID, &raw, &got.Tenant, &got.Topic, &got.Partition, &got.Offset, &at,
			&got.Key, &got.Value, &headers, &ordinal))
		if at != nil {
			got.Timestamp = at.UTC()
		}
		got.RawID = text(raw)
		got.Headers, err = dedup.DecodeHeaders(headers)
		require.NoError(t, err)
		requireSame(t, ms[n], got)
		require.Equal(t, n+1, ordinal)
	}
	require.NoError(t, rows.Err())
	return n
}
