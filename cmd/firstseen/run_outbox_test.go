package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/view"
)

// sendingShop is a shop whose handler adds two messages to the outbox for each of its own: one for Kafka, and one for a
// webhook.
type sendingShop struct {
	*shop
	out  string
	hook *httptest.Server

	mu    sync.Mutex
	calls map[string]string // bodies by ID
}

func newSendingShop(t *testing.T) *sendingShop {
	t.Helper()
	s := &sendingShop{out: consumertest.Name(t), calls: map[string]string{}}
	s.shop = newShop(t, fmt.Sprintf(`create function billing.book_order(m firstseen.message)
		returns void language sql as $$
		insert into billing.booked values (m.id);
		select firstseen.send(%[1]s, 'booked '::text || m.id, p_key => m.id::text, p_idempotency_key => m.id::text);
		select firstseen.send('crm', jsonb_build_object('id', m.id)) $$`, "'"+s.out+"'"))
	consumertest.CreateTopic(t, s.addr, s.out, 1)
	s.hook = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.calls[r.Header.Get("Idempotency-Key")] = string(body)
		}
	}))
	t.Cleanup(s.hook.Close)
	return s
}

func (s *sendingShop) outbox() string {
	return fmt.Sprintf(`outbox:
  destinations:
    - {name: events, topics: [%s]}
    - {name: crm, topics: crm, webhook: {url: %q, allow_private: true}}
`, s.out, s.hook.URL)
}

func (s *sendingShop) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

func TestRunSendsWhatItsHandlersHaveAddedToTheOutbox(t *testing.T) {
	s := newSendingShop(t)
	s.produce(0, 10)
	p := start(t, s.config(s.db.DSN)+s.outbox()+"http: {listen: '127.0.0.1:0'}\n", "run")
	eventually(t, func() bool { return s.booked() == 10 && s.called() == 10 })
	records := consumertest.Surviving(t, s.addr, s.out)
	require.Len(t, records, 10)
	for _, r := range records {
		require.Equal(t, "booked "+string(r.Key), string(r.Value))
		require.Equal(t, "message-id", r.Headers[len(r.Headers)-1].Key)
		require.Equal(t, string(r.Key), string(r.Headers[len(r.Headers)-1].Value), "the key is a UUID")
	}
	_, metrics := p.ask("/metrics")
	require.Regexp(t, `(?m)^firstseen_outbox_throughput_per_second\S* [0-9.]*[1-9]`, metrics)
	_, health := p.ask("/healthz")
	require.Contains(t, health, `"outbox_oldest_age"`)
	stdout, stderr, code := command(t, "outbox", "list", "--status", "processed", "--dsn", s.db.DSN)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, 21, strings.Count(stdout, "\n"))
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
}

// sendsOnly is a config without topics.
func (s *sendingShop) sendsOnly() string {
	return fmt.Sprintf("postgres: {dsn: %q}\nkafka: {brokers: [%q]}\ngroup: %s\nhttp: {listen: '127.0.0.1:0'}\n",
		s.db.DSN, s.addr, s.group) + s.outbox()
}

// postsOnly is a config that does without Kafka.
func (s *sendingShop) postsOnly() string {
	return fmt.Sprintf("postgres: {dsn: %q}\ngroup: %s\nhttp: {listen: '127.0.0.1:0'}\noutbox: {destinations: [{name: crm, "+
		"topics: crm, webhook: {url: %q, allow_private: true}}]}\n", s.db.DSN, s.group, s.hook.URL)
}

func TestRunWithoutTopicsOnlySends(t *testing.T) {
	s := newSendingShop(t)
	s.exec(fmt.Sprintf(`select firstseen.send('%s', i::text, p_key => i::text), firstseen.send('crm', i::text),
		firstseen.send('no', i::text) from generate_series(1, 10) i`, s.out))
	p := start(t, s.sendsOnly()+"retention: {outbox_keys: 1d, inbox: 30d}\n", "run")
	eventually(t, func() bool { return s.called() == 10 && len(consumertest.Surviving(t, s.addr, s.out)) == 10 })
	require.Contains(t, p.log.String(), "reads nothing; sends the outbox's messages of 2 topics")
	code, ready := p.ask("/readyz")
	require.Equal(t, http.StatusOK, code, ready)
	_, health := p.ask("/healthz")
	require.Contains(t, health, "none: no topics are read")
	require.Contains(t, health, `"outbox_oldest_age"`)
	var status view.Status
	eventually(t, func() bool {
		code, answer := p.ask("/api/v1/status")
		if code != http.StatusOK { // it is asked too often
			return false
		}
		require.NoError(t, json.Unmarshal([]byte(answer), &status), answer)
		return status.Outbox.CountedAt != nil && len(status.Outbox.Destinations) == 3
	})
	require.Equal(t, "sending", status.State)
	events, crm, none := status.Outbox.Destinations[0], status.Outbox.Destinations[1], status.Outbox.Destinations[2]
	require.Equal(t, []any{"events", int64(10), "crm", int64(10)},
		[]any{*events.Destination, events.Totals.Handled, *crm.Destination, crm.Totals.Handled})
	require.Nil(t, none.Destination)
	require.Equal(t, []any{[]string{"no"}, int64(10), int64(0)}, []any{none.Topics, none.Pending, none.Sent})
	_, metrics := p.ask("/metrics")
	require.Regexp(t, `(?m)^firstseen_outbox_throughput_per_second\S* [0-9.]*[1-9]`, metrics)
	stdout, stderr, exit := command(t, "status", "--config", p.config)
	require.Equal(t, exitOK, exit, stderr)
	require.Regexp(t, `(?m)^DESTINATION +PENDING +FAILED +DEAD +SENT +OLDEST +HELD$`, stdout)
	require.Regexp(t, `(?m)^events +0 +0 +0 +10 +- *$`, stdout)
	require.Regexp(t, `(?m)^none, of topic no +10 +0 +0 +0 +\S+ ago *$`, stdout)
	stdout, stderr, exit = command(t, "doctor", "--config", p.config, "--only", "kafka.group", "--only", "holds", "--all")
	require.Equal(t, exitOK, exit, stdout+stderr)
	require.Contains(t, stdout, "there are no topics to read")
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
}

func TestKeysOfWhatWasSentGoByRunAndByHand(t *testing.T) {
	s := newSendingShop(t)
	sent := func(key string) (existed bool) {
		require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select already_existed
			from firstseen.send('crm', $1::text, p_idempotency_key => $1)`, key).Scan(&existed))
		return existed
	}
	await := func(calls int) {
		eventually(t, func() bool { return s.called() == calls })
		eventually(t, func() bool {
			var left int
			require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select (select count(*) from firstseen.outbox)
				+ (select count(*) from firstseen.parked)`).Scan(&left))
			return left == 0
		})
		s.exec(`update firstseen.message_dedup set first_seen_at = now() - interval '2 days'`)
	}
	require.False(t, sent("a"))
	p := start(t, s.postsOnly()+"retention: {outbox_keys: 3d}\n", "run")
	await(1)
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.True(t, sent("a"), "three days are not over")
	stdout, stderr, code := command(t, "doctor", "--config", p.config, "--only", "kafka.reachable", "--only", "kafka.lag",
		"--only", "holds", "--all")
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Contains(t, stdout, "kafka.reachable, lag: not checked: nothing is read from Kafka, and nothing sent to it")

	again := start(t, s.postsOnly()+"retention: {outbox_keys: 1d}\n", "run")
	again.awaitLog("outbox_ids=1")
	require.False(t, sent("a"), "it is a new message")
	await(1) // under the ID that it had
	again.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, again.exit())

	stdout, stderr, code = command(t, "retention", "plan", "--config", again.config)
	require.Equal(t, exitOK, code, stderr)
	require.Regexp(t, `(?m)^outbox: crm +24h0m0s +\S+ \S+ +1 +go$`, stdout)
	stdout, stderr, code = command(t, "retention", "run", "--why", "test", "--config", again.config)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, "1 IDs forgotten")
	require.False(t, sent("a"))
}

// What a program waits for that has no consumer is in Postgres and in its status all the same.
func TestRunThatOnlySendsTellsWhatItWaitsFor(t *testing.T) {
	s := newSendingShop(t)
	s.exec(`select firstseen.send('crm', 'x'::text)`)
	s.hook.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, stderr, code := command(t, "outbox", "pause", "destination", "events", "--why", "moved", "--dsn", s.db.DSN)
	require.Equal(t, exitOK, code, stderr)
	p := start(t, s.sendsOnly(), "run")
	eventually(t, func() bool {
		stdout, stderr, code := command(t, "status", "--config", p.config)
		require.Equal(t, exitOK, code, stderr)
		return regexp.MustCompile(`(?m)^events .* paused *$`).MatchString(stdout) &&
			strings.Contains(stdout, "waiting in relay/outbox")
	})
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
}

func TestRunEndsThoughADestinationHangs(t *testing.T) {
	s := newSendingShop(t)
	hung, over := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(over) })
	s.hook.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		hung <- struct{}{}
		<-over
	})
	s.produce(0, 3)
	p := start(t, s.config(s.db.DSN)+s.outbox()+"timeouts: {drain: 1s}\n", "run")
	<-hung
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
}
