package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

// requestsSQL has a hundred requests to a route, by what their keys and fingerprints are made of, and their ages.
const requestsSQL = `insert into firstseen.idempotency
	(id, key_hash, tenant, scope, route, fingerprint, status, created_at, expires_at)
	select sha256(('%[1]s' || n)::bytea), sha256((%[2]s)::text::bytea), 'acme', '', '%[1]s', sha256((%[3]s)::text::bytea), 201,
		now() - %[4]s, now() + interval '1 day'
	from generate_series(1, 100) n`

// alike are requests to a route of which so many are the same as the one before.
func alike(level Level, seen string, n int) trouble {
	return table(level, seen, fmt.Sprintf(requestsSQL, "POST /pay", "n", fmt.Sprintf("greatest(n, %d)", n+1), "interval '0'"),
		forgetPay)
}

// answer has requests to healthy routes: of its own each, and the same again and again, but not within five minutes. Messages
// by HTTP are young.
func (l *lab) answer() {
	l.t.Helper()
	l.sql(fmt.Sprintf(requestsSQL, "POST /orders", "n", "greatest(n, 2)", "interval '0'"))
	l.sql(fmt.Sprintf(requestsSQL, "POST /pings", "n / 9", "1", "n * interval '6 minutes'"))
	l.enqueue(time.Hour)
}

// enqueue has a message by HTTP of so long ago, which is done.
func (l *lab) enqueue(age time.Duration) {
	l.t.Helper()
	l.sql(`insert into firstseen.enqueued (inbox, tenant, topic, message_id, request_hash, enqueued_by, enqueued_at)
		values ($1, '', $2, gen_random_uuid(), '', 'shop', now() - $3::interval)`, inbox, topic, age)
}

func (l *lab) keepInbox(age time.Duration) {
	l.also(func(c *config.Config) { c.Retention.Inbox = age })
}

const idleLaneSQL = `insert into firstseen.lanes (scope_id, lane, due_at, inbox, handler, topic, "partition")
	select scope_id, gen_random_uuid(), now() - interval '1 hour', inbox, handler, 'orders', -1
	from firstseen.scopes where scope_id = {scope}`

var httpTroubles = map[string][]trouble{
	"http.expired": {table(Warning, `^3 answers have been expired for more than 2h0m0s, the first since .* about \d+ rows, \d+`,
		`insert into firstseen.idempotency (id, key_hash, tenant, scope, route, fingerprint, expires_at)
			select sha256(n::text::bytea), '', '', '', 'POST /late', '', now() - n * interval '3 hours' from generate_series(1, 3) n`,
		`delete from firstseen.idempotency where route = 'POST /late'`)},
	"http.claims": {trouble{Warning, `^POST /pay: 1 requests were claimed by a process that did not end them, and by none since`,
		func(l *lab) {
			store, err := idempotency.Open(l.t.Context(), l.db.Pool, idempotency.PostgresConfig{})
			require.NoError(l.t, err)
			_, _, err = store.Claim(l.t.Context(), idempotency.Entry{Route: "POST /pay"}, time.Millisecond, time.Hour)
			require.NoError(l.t, err)
			l.heal(func() { l.sql(forgetPay) })
		}}.under(func(m *limits) { m.overdue = 0 })},
	"http.fresh_keys": {
		alike(Warning, `^POST /pay: 50 of the newest 100 requests were the same as one`, 50),
		alike(Info, `^POST /pay: 5 of the newest 100 requests were the same as one`, 5),
	},
	"http.shared_keys": {table(Info, `^POST /pay: 2 keys came from 10 callers or more each, one of them from 50`,
		strings.Replace(fmt.Sprintf(requestsSQL, "POST /pay", "n % 2", "n", "interval '0'"), "'acme'", "'t' || n % 3", 1),
		forgetPay)},
	"ingress.queued": {table(Warning, `^handler book: messages by HTTP of topic orders have been due for more than 10m0s in 1 lanes`,
		idleLaneSQL, `truncate firstseen.lanes`)},
	"ingress.kept": {
		{Info, `^the table enqueued has had messages by HTTP since \d{4}-.*, and retention.inbox is not set: it has about`,
			func(l *lab) {
				l.enqueue(100 * 24 * time.Hour)
				l.heal(func() { l.sql(`delete from firstseen.enqueued where enqueued_at < now() - interval '1 day'`) })
			}},
		{Warning, `^1 messages by HTTP are done, older than retention.inbox \(24h0m0s\) and kept all the same, the first since`,
			func(l *lab) {
				l.keepInbox(24 * time.Hour)
				l.enqueue(72 * time.Hour)
				l.heal(func() { l.sql(`delete from firstseen.enqueued where enqueued_at < now() - interval '1 day'`) })
			}},
	},
}

// requireSilentByRight has what looks like trouble and is none.
func (l *lab) requireSilentByRight(t *testing.T) {
	defer l.healthy()
	check := func(name string) Level {
		checks, err := Select([]string{name})
		require.NoError(t, err)
		return Worst(l.check(&checks[0]))
	}
	for _, c := range innocent {
		l.sql(c.make)
		require.Equal(t, OK, check(c.check), c.why)
		l.sql(c.undo)
	}
	l.sql(idleLaneSQL)
	require.Equal(t, Warning, check("ingress.queued"))
	require.Equal(t, OK, check("lanes.overdue"), "told once")
	for _, pause := range [][2]string{{"handler", handler}, {"topic", topic}} {
		l.sql(fmt.Sprintf(pauseSQL, pause[0], pause[1], "0"))
		require.Equal(t, OK, check("ingress.queued"))
		l.sql(`update firstseen.pauses set inbox = 'other'`)
		require.Equal(t, Warning, check("ingress.queued"), "paused for others")
		l.sql(`truncate firstseen.pauses`)
	}
	l.sql(`truncate firstseen.lanes`)

	l.keepInbox(24 * time.Hour)
	l.enqueue(36 * time.Hour)
	require.Equal(t, OK, check("ingress.kept"), "the inbox goes by days")
	l.enqueue(72 * time.Hour)
	require.Equal(t, Warning, check("ingress.kept"))
	for _, unfinished := range []string{`insert into firstseen.parked ("offset", scope_id, lane, message_id, topic)
		select 1, {scope}, gen_random_uuid(), message_id, topic from firstseen.enqueued`,
		`insert into firstseen.dead_letters (scope_id, message_id, topic, reason)
		select {scope}, message_id, topic, 'permanent' from firstseen.enqueued`} {
		l.sql(unfinished)
		require.Equal(t, OK, check("ingress.kept"), "retention keeps what is unfinished")
		l.sql(`truncate firstseen.parked; truncate firstseen.dead_letters`)
	}
	l.sql(`update firstseen.enqueued set inbox = 'other'`)
	require.Equal(t, OK, check("ingress.kept"), "another inbox's")
	l.sql(`delete from firstseen.enqueued where enqueued_at < now() - interval '1 day'`)
	l.sql(`update firstseen.enqueued set inbox = $1`, inbox)

	l.sql(strings.Replace(sameOf("'acme', ''"), "'1 day'", "'1 hour'", 1))
	require.Equal(t, Warning, check("http.fresh_keys"))
	l.limits = func(m *limits) { m.sample = 200 }
	require.Equal(t, OK, check("http.fresh_keys"), "the newest are others")
	l.sql(forgetPay)
}

const (
	forgetPay = `delete from firstseen.idempotency where route = 'POST /pay'`

	// claimSQL has a request whose claim and whose time have so long to go.
	claimSQL = `insert into firstseen.idempotency
		(id, key_hash, tenant, scope, route, fingerprint, lease_until, expires_at)
		values ('', '', '', '', 'POST /pay', '', now() + interval '%s', now() + interval '%s')`
)

// innocent are states that a check is silent about.
var innocent = []struct{ check, why, make, undo string }{
	{"http.expired", "somebody is at it", fmt.Sprintf(claimSQL, "1 minute", "-3 hours"), forgetPay},
	{"http.claims", "it counts no more", fmt.Sprintf(claimSQL, "-1 hour", "-1 minute"), forgetPay},
	{"http.claims", "it may yet be kept up", fmt.Sprintf(claimSQL, "-1 minute", "1 hour"), forgetPay},
	{"http.fresh_keys", "of other tenants", sameOf("'t' || n, ''"), forgetPay},
	{"http.fresh_keys", "of other conversations", sameOf("'acme', 'c' || n"), forgetPay},
	{"http.fresh_keys", "too few to tell", strings.Replace(sameOf("'acme', ''"), "(1, 100)", "(1, 19)", 1), forgetPay},
	{"ingress.queued", "a partition's", strings.Replace(idleLaneSQL, "-1", "0", 1), `truncate firstseen.lanes`},
	{"ingress.queued", "another inbox's", strings.Replace(idleLaneSQL, "'1 hour', inbox", "'1 hour', 'other'", 1),
		`truncate firstseen.lanes`},
}

// sameOf has a hundred requests that are the same, of tenants and scopes.
func sameOf(tenantAndScope string) string {
	same := fmt.Sprintf(requestsSQL, "POST /pay", "n", "1", "interval '0'")
	return strings.Replace(same, "'acme', ''", tenantAndScope, 1)
}
