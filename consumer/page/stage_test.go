package page_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/admin"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }

const (
	readToken  = "a-token-for-readers"
	writeToken = "a-token-for-writers"
)

// stage is a server with the page, over an inbox in a database of its own.
type stage struct {
	t      testing.TB
	db     *deduptest.DB
	store  *dedup.Store
	inbox  *operate.Inbox
	around *service.Service
	server *admin.Server
	log    *deduptest.Log
	status consumer.Status
	told   atomic.Pointer[consumer.Status]
	next   int64
}

// newStageWith is newStage with a doctor.
func newStageWith(t *testing.T, doctor func(context.Context) ([]view.Finding, error)) *stage {
	return stageOf(t, deduptest.New(t), doctor, nil)
}

// newStage has a read token and a write token, unless change says otherwise.
func newStage(t testing.TB, change func(*service.Settings)) *stage {
	return stageOf(t, deduptest.New(t), nil, change)
}

func stageOf(t testing.TB, db *deduptest.DB, doctor func(context.Context) ([]view.Finding, error),
	change func(*service.Settings), more ...func(*stage, *service.Parts)) *stage {
	s := &stage{t: t, db: db, log: &deduptest.Log{}}
	s.status = consumer.Status{State: consumer.Consuming, Since: time.Now(), Generation: 3, Rebalances: 1,
		Partitions: []consumer.PartitionStatus{{Topic: "orders", Next: 5, Committed: 4, End: 1009, HighWatermark: 1009,
			Lag: 1004, LagTime: 90 * time.Second}, {Topic: "orders", Partition: 1, Next: 7, End: 7, CaughtUp: true}}}
	s.tell(s.status)
	var err error
	s.store, err = dedup.Open(t.Context(), s.db.Pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	s.inbox = operate.Of(s.store)
	settings := service.Settings{Access: service.Access{ReadToken: readToken, WriteToken: writeToken, Rate: 10_000}}
	if change != nil {
		change(&settings)
	}
	around, err := service.New(service.Config{Group: "billing", Inbox: "orders-inbox", Version: "v1", Pool: s.db.Pool,
		Settings: settings, Doctor: doctor, Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	require.NoError(t, err)
	s.around = around
	s.server, err = admin.New(admin.Config{Service: around, Listen: "127.0.0.1:0", Page: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, s.server.Start(ctx))
	parts := service.Parts{Inbox: s.inbox, Status: func() consumer.Status { return *s.told.Load() },
		Totals: func() handlers.Totals { return handlers.Totals{Handled: 90, Failed: 1, Duplicates: 12} }}
	for _, add := range more {
		add(s, &parts)
	}
	around.Attach(parts)
	stop := around.Start(ctx)
	t.Cleanup(func() { cancel(); s.server.Stop(); stop() })
	return s
}

// tell changes the consumer's status.
func (s *stage) tell(status consumer.Status) { s.told.Store(&status) }

// letter is a message that a handler has given up, or one that waits.
type letter struct {
	handler, tenant, id, reason, err string
	topic                            string
	key, value                       []byte
	headers                          []dedup.Header
	status                           operate.Status // dead, unless it is said
}

// add takes a message in; without a state it is a dead letter. It gives the message's ID.
func (s *stage) add(l letter) uuid.UUID {
	s.t.Helper()
	ids, err := identity.ParseIDs(l.id)
	require.NoError(s.t, err)
	m := dedup.Message{ID: ids[0], RawID: l.id, Tenant: l.tenant, Topic: or(l.topic, "orders"), Offset: s.next,
		Key: l.key, Value: l.value, Headers: l.headers, Timestamp: time.Unix(1e9, 0),
		Fingerprint: identity.FingerprintBytes.Of(l.value)}
	s.next++
	scopes, err := s.store.Scopes(s.t.Context(), []dedup.ScopeKey{{Handler: or(l.handler, "book"), Tenant: l.tenant}})
	require.NoError(s.t, err)
	e := dedup.Entry{Scope: scopes.IDs[0], Message: &m, Lane: m.ID, State: dedup.Dead, Attempts: 10,
		Reason: or(l.reason, "attempts_exhausted"), Error: or(l.err, "no such account")}
	switch l.status {
	case operate.StatusPending:
		e.State, e.Due, e.Attempts, e.Reason, e.Error = dedup.Parked, time.Hour, 0, "", ""
	case operate.StatusFailed:
		e.State, e.Due, e.Attempts = dedup.Parked, time.Hour, 3
	case operate.StatusProcessed:
		e = dedup.Entry{Scope: scopes.IDs[0], Message: &m, Lane: m.ID, State: dedup.Processed}
	}
	tx, err := s.store.Accept(s.t.Context(), &dedup.Batch{Entries: []dedup.Entry{e}})
	require.NoError(s.t, err)
	require.NoError(s.t, tx.Commit(s.t.Context()))
	return ids[0]
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// browser is a visitor with cookies, who runs no script and follows no redirect by itself.
type browser struct {
	s      *stage
	client *http.Client
	header http.Header // of all requests
	base   string      // of all addresses; empty: the server's page
}

func (s *stage) browser() *browser {
	jar, err := cookiejar.New(nil)
	require.NoError(s.t, err)
	b := &browser{s: s, header: http.Header{}, client: &http.Client{Jar: jar, Transport: &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	s.t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// signedIn is a browser of somebody who has shown a token.
func (s *stage) signedIn(token, actor string) *browser {
	s.t.Helper()
	b := s.browser()
	require.Equal(s.t, http.StatusSeeOther, b.post("signin", "token", token, "actor", actor).status)
	return b
}

// answer is a page, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

func (s *stage) url(address string) string {
	return "http://" + s.server.Addr().String() + "/ui/" + strings.TrimPrefix(address, "./")
}

func (b *browser) url(address string) string {
	if b.base != "" {
		return b.base + strings.TrimPrefix(address, "./")
	}
	return b.s.url(address)
}

func (b *browser) get(address string) answer {
	b.s.t.Helper()
	r, err := http.NewRequestWithContext(b.s.t.Context(), http.MethodGet, b.url(address), nil)
	require.NoError(b.s.t, err)
	return b.do(r)
}

// read wants a page that is there.
func (b *browser) read(address string) string {
	b.s.t.Helper()
	a := b.get(address)
	require.Equal(b.s.t, http.StatusOK, a.status, "%s: %s\n%s", address, a.body, b.s.log.String())
	return a.body
}

// post sends a form, of names and values.
func (b *browser) post(address string, pairs ...string) answer {
	b.s.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	r, err := http.NewRequestWithContext(b.s.t.Context(), http.MethodPost, b.url(address), strings.NewReader(form.Encode()))
	require.NoError(b.s.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

func (b *browser) do(r *http.Request) answer {
	b.s.t.Helper()
	for name, values := range b.header {
		r.Header[name] = values
		if name == "Host" {
			r.Host = values[0]
		}
	}
	response, err := b.client.Do(r)
	require.NoError(b.s.t, err)
	defer func() { require.NoError(b.s.t, response.Body.Close()) }()
	content, err := io.ReadAll(response.Body)
	require.NoError(b.s.t, err)
	return answer{response.StatusCode, response.Header, string(content)}
}

// inputs are the hidden fields of a page's forms, as pairs for post.
func inputs(page string) (pairs []string) {
	for _, found := range regexp.MustCompile(`<input type="hidden" name="([a-z_]+)" value="([^"]*)">`).
		FindAllStringSubmatch(page, -1) {
		pairs = append(pairs, found[1], unescape(found[2]))
	}
	return pairs
}

func unescape(text string) string {
	return strings.NewReplacer("&amp;", "&", "&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&#43;", "+").Replace(text)
}

// formOf is what a page's forms have to bring along.
func formOf(t *testing.T, page string) string {
	t.Helper()
	found := regexp.MustCompile(`name="form" value="([0-9a-f]{64})"`).FindStringSubmatch(page)
	require.NotNil(t, found, "the page has no form")
	return found[1]
}
