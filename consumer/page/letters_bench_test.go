package page_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/dedup/operate"
)

// BenchmarkMillionDeadLetters reads the page's views over a million dead letters of 500 partitions: of 6 handlers, 40
// tenants and 8 reasons, with 3,000 kinds of errors, over 30 days. Each figure is that of a view as a browser gets it,
// by the API, from a Postgres with durable settings. FIRSTSEEN_BENCH_LETTERS is another number of letters.
//
//	go test ./consumer/page -run '^$' -bench MillionDeadLetters -benchtime 200x
func BenchmarkMillionDeadLetters(b *testing.B) {
	n := 1_000_000
	if text := os.Getenv("FIRSTSEEN_BENCH_LETTERS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	server := deduptest.StartServer(b, pgserver.Config{Settings: map[string]string{"fsync": "on",
		"synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "512MB", "max_wal_size": "4GB"}})
	s := stageOf(b, deduptest.Migrated(b, server.DSN("postgres")), nil, func(s *service.Settings) { s.Access.Rate = 1e6 })
	s.status.Partitions = partitions(500)
	s.tell(s.status)
	fillLetters(s, n)
	visitor := s.signedIn(writeToken, "bench")
	for _, one := range looks(s, n) {
		b.Run(one.name, func(b *testing.B) { measure(b, visitor, one.address) })
	}
}

func partitions(n int) (list []consumer.PartitionStatus) {
	for i := range n {
		at := int64(1000 * i)
		list = append(list, consumer.PartitionStatus{Topic: fmt.Sprint("topic-", i%5), Partition: int32(i / 5), Next: at,
			Committed: at, End: at + 7, HighWatermark: at + 7, Lag: 7, LagTime: time.Second})
	}
	return list
}

// fill are letters from the oldest to the newest. What is rare is old: a list looks for it longest.
const fill = `
	with scopes as (
		insert into firstseen.scopes (inbox, handler, tenant)
		select 'orders-inbox', 'handler-' || h, 'tenant-' || t from generate_series(0, 5) h, generate_series(0, 39) t
		union all select 'orders-inbox', 'handler-rare', 'tenant-rare'
		returning scope_id, handler, tenant),
	numbered as (select scope_id, row_number() over (order by handler, tenant) - 1 as no from scopes where handler <> 'handler-rare'),
	rare as (select scope_id from scopes where handler = 'handler-rare'),
	letters as (
		select case when n % 50000 = 17 and n <= $1 / 2 then (select scope_id from rare) else m.scope_id end as scope_id,
			gen_random_uuid() as id, n, now() - ($1 - n) * (interval '30 days' / $1) as at
		from generate_series(1, $1::int) n join numbered m on m.no = n % 240),
	seen as (insert into firstseen.message_dedup (scope_id, message_id, first_seen_at) select scope_id, id, at from letters)
	insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", received_at, died_at, attempts,
		raw_id, reason, error, key, payload)
	select scope_id, id, 'topic-' || n % 5, n % 100, n, at, at, 10, 'order-' || n,
		case when n % 50000 = 17 then 'too_old' else (array['attempts_exhausted', 'permanent', 'undecodable', 'missing_id',
			'id_too_long', 'ended_session', 'killed'])[1 + n % 7] end,
		'no account of kind ' || translate((n % 3000)::text, '0123456789', 'abcdefghij') || ' for order ' || n,
		convert_to('key-' || n % 50000, 'UTF8'), convert_to(repeat('x', 300), 'UTF8')
	from letters`

func fillLetters(s *stage, n int) {
	s.t.Helper()
	_, err := s.db.Pool.Exec(s.t.Context(), fill, n)
	require.NoError(s.t, err)
	_, err = s.db.Pool.Exec(s.t.Context(), `vacuum (analyze) firstseen.dead_letters, firstseen.message_dedup, firstseen.scopes`)
	require.NoError(s.t, err)
	_, err = s.db.Pool.Exec(s.t.Context(), `checkpoint`)
	require.NoError(s.t, err)
}

type look struct{ name, address string }

// looks are what a person asks for, of what is frequent, rare and not there.
func looks(s *stage, n int) []look {
	deep := time.Now().Add(-27 * 24 * time.Hour)
	_, cursor, err := s.inbox.Messages(s.t.Context(), operate.Listing{Status: operate.StatusDead, Limit: 1,
		Filter: operate.Filter{To: deep}})
	require.NoError(s.t, err)
	var id string
	require.NoError(s.t, s.db.Pool.QueryRow(s.t.Context(), `select message_id::text from firstseen.dead_letters
		where raw_id = $1`, "order-"+strconv.Itoa(n/3)).Scan(&id))
	dead := func(pairs ...string) string { return address("dead", pairs...) }
	return []look{
		{"overview", ""},
		{"first-page", dead()},
		{"deep-page", dead("cursor", string(cursor))},
		{"id", dead("id", id)},
		{"id-unknown", dead("id", "order-x")},
		{"key", dead("key", "key-4711")},
		{"key-unknown", dead("key", "none")},
		{"handler", dead("handler", "handler-3")},
		{"handler-rare", dead("handler", "handler-rare")},
		{"handler-unknown", dead("handler", "none")},
		{"tenant", dead("tenant", "tenant-7")},
		{"tenant-rare", dead("tenant", "tenant-rare")},
		{"tenant-of-handler", dead("tenant", "tenant-7", "handler", "handler-3")},
		{"topic", dead("topic", "topic-2")},
		{"topic-unknown", dead("topic", "none")},
		{"reason", dead("reason", "permanent")},
		{"reason-rare", dead("reason", "too_old")},
		{"reason-unknown", dead("reason", "bad_tenant")},
		{"time", dead("since", deep.Add(-time.Hour).Format(time.RFC3339), "until", deep.Format(time.RFC3339))},
		{"time-and-rare-tenant", dead("until", deep.Format(time.RFC3339), "tenant", "tenant-rare")},
		{"waiting", address("waiting")},
		{"count-all", address("bulk", "kind", "redrive")},
		{"count-tenant", address("bulk", "kind", "redrive", "tenant", "tenant-7")},
		{"count-rare", address("bulk", "kind", "discard", "reason", "too_old")},
	}
}

func address(page string, pairs ...string) string {
	query := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	return page + "?" + query.Encode()
}

// measure reports quantiles, with one visit that is not counted.
func measure(b *testing.B, visitor *browser, address string) {
	require.Equal(b, http.StatusOK, visitor.get(address).status)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		require.Equal(b, http.StatusOK, visitor.get(address).status)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	quantile := func(q float64) float64 { return took[min(len(took)-1, int(q*float64(len(took))))].Seconds() * 1000 }
	b.ReportMetric(quantile(0.5), "p50-ms")
	b.ReportMetric(quantile(0.99), "p99-ms")
	b.ReportMetric(0, "ns/op")
}
