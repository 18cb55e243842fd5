package operate_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/operate"
)

// fillOutbox has n messages of each kind, of ten topics.
func (p *post) fillOutbox(n int) {
	p.t.Helper()
	p.exec(`insert into firstseen.scopes (inbox, handler, tenant) values ('outbox', 'events', ''), ('other', 'h', '')`)
	p.exec(`insert into firstseen.outbox (outbox_id, message_id, shard, topic, tenant, payload)
		select nextval('firstseen.outbox_seq'), gen_random_uuid(), n % 16, 'topic ' || n / 16 % 10, '', 'x' from generate_series(1, $1::int) n`, n)
	p.exec(`insert into firstseen.outbox_delayed (outbox_id, due_at, message_id, shard, topic, tenant, payload)
		select nextval('firstseen.outbox_seq'), now() + n * interval '1 s', gen_random_uuid(), n % 16, 'topic ' || n / 16 % 10, '', 'x'
		from generate_series(1, $1::int) n`, n)
	p.exec(`insert into firstseen.inbox (received_at, scope_id, message_id, topic, "partition", "offset", produced_at, payload)
		select now() - n * interval '1 ms', s.scope_id, gen_random_uuid(), 'topic', 0, -n, now(), 'x'
		from generate_series(1, $1::int) n join firstseen.scopes s on s.inbox = case when n % 2 = 0 then 'outbox' else 'other' end`, n)
	p.exec(`insert into firstseen.dead_letters (died_at, scope_id, message_id, topic, "partition", "offset", produced_at, reason)
		select now() - n * interval '1 s', s.scope_id, gen_random_uuid(), 'topic', 0, -n, now(), 'permanent'
		from generate_series(1, $1::int) n join firstseen.scopes s on s.inbox = 'outbox'`, n)
	p.exec(`insert into firstseen.outbox_keys (tenant, message_id) select tenant, message_id from firstseen.outbox`)
	p.exec(`analyze`)
}

// A page of a million rows, with FIRSTSEEN_TEST_ROWS=1000000, takes the same index as one of these.
func TestPlansOfOutboxPagesReadNoTableWhole(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	rows, _ := strconv.Atoi(os.Getenv("FIRSTSEEN_TEST_ROWS"))
	p.fillOutbox(max(rows, 20_000))
	const columns = `select outbox_id, topic, tenant, message_id, idempotency_key, status, created_at, processed_at, error, retry_count
		from firstseen.outbox_messages where `
	for name, sql := range map[string]string{
		"outbox": `lies_in = 'outbox' and (topic, shard, outbox_id) > ('topic 3', 7, 500) order by topic, shard, outbox_id limit 100`,
		"one topic and shard": `lies_in = 'outbox' and topic = 'topic 3' and shard = 7 and outbox_id < 100000000
			order by outbox_id desc limit 100`,
		"delayed":      `lies_in = 'outbox_delayed' and outbox_id < 100000000 order by outbox_id desc limit 100`,
		"delayed, due": `lies_in = 'outbox_delayed' and due_at > now() order by due_at limit 100`,
		"processed":    `lies_in = 'inbox' and taken_at < now() order by taken_at desc limit 100`,
		"dead":         `lies_in = 'dead_letters' and died_at < now() order by died_at desc limit 100`,
	} {
		plan := p.plan(columns + sql)
		require.NotRegexp(t, `Seq Scan on (outbox|inbox|dead_letters)`, plan, name)
	}
	began := time.Now()
	var after operate.Cursor
	for range 3 {
		found, next, err := p.inbox.Messages(t.Context(), operate.Listing{Status: operate.StatusPending, Limit: 100, After: after})
		require.NoError(t, err)
		require.Len(t, found, 100)
		after = next
	}
	t.Log("three pages of what waits took", time.Since(began))
}

func (p *post) plan(sql string) string {
	p.t.Helper()
	rows, err := p.Pool.Query(p.t.Context(), "explain (analyze, costs off, timing off) "+sql)
	require.NoError(p.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(p.t, err)
	return fmt.Sprintln(strings.Join(lines, "\n"))
}
