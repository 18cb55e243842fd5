package handlers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/holds"
)

// lockedLog is a log that many write to.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (l *lockedLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// app is where a handler in SQL puts its effects, and the function, which siblings share with messages that are told
// to do something else.
const app = `create schema app;
	create table app.ledger (seq bigint generated always as identity, key text, "offset" bigint);
	create function app.book(m firstseen.message) returns void language plpgsql as $$
	begin
		if convert_from(m.payload, 'utf8') like 'sql:%' then
			execute substr(convert_from(m.payload, 'utf8'), 5);
		end if;
		insert into app.ledger (key, "offset") values (convert_from(m.key, 'utf8'), m."offset");
	end $$`

const grants = `grant usage on schema app to LOGIN; grant insert on app.ledger to LOGIN; grant execute on function app.book to LOGIN`

func TestADeploymentInTheWrongOrderSpendsNoAttemptAndGoesOnByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ breaks, mends, reason string }{
		"right": {`revoke insert on app.ledger from LOGIN`, grants, "permission denied for table ledger"},
		"usage": {`revoke usage on schema app from LOGIN`, grants, "permission denied for schema app"},
		"call": {`revoke execute on function app.book from public, LOGIN`, grants,
			"permission denied for function book"},
		"table": {`alter table app.ledger rename to old`, `alter table app.old rename to ledger`,
			"\"app.ledger\" does not exist"},
		"column": {`alter table app.ledger rename key to old`, `alter table app.ledger rename old to key`,
			"column \"key\""},
		"function": {`alter function app.book rename to old`,
			`alter function app.old rename to book`, "function app.book"},
		"schema": {`alter schema app rename to old`, `alter schema old rename to app`, "schema \"app\""},
	} {
		t.Run(name, func(t *testing.T) {
			b, log := newBench(t), &lockedLog{}
			b.exec(app)
			login, pool := b.asConsumer()
			with := func(sql string) string { return strings.ReplaceAll(sql, "LOGIN", login) }
			b.exec(with(grants))
			handler, err := NewSQL(t.Context(), pool, "", "app.book")
			require.NoError(t, err)
			p := b.processor(func(cfg *Config) { cfg.Logger = log.logger() },
				Registration{Name: "h", Handler: handler, Retry: Retry{Base: 1, Cap: 1, MaxAttempts: 2}})
			p.circuits[p.cfg.Handlers.all[0]].pause = 20 * time.Millisecond
			lanes(t, p)
			texts := make([]string, 20)
			for i := range texts {
				texts[i] = fmt.Sprintf("k%d=v", i%15)
			}
			require.Equal(t, Result{New: 20}, b.process(p, b.messages(texts...)))

			b.exec(with(c.breaks))
			for range 3 {
				require.Equal(t, Result{Parked: 20}, b.process(p, b.messages(texts...)))
			}
			require.Eventually(t, func() bool { return log.count("handler failed") >= 8 },
				3*time.Minute, time.Millisecond, "it is tried")
			require.Len(t, p.Holds().List(), 1)
			require.Equal(t, holds.Deployment, p.Holds().List()[0].Code)
			require.Contains(t, p.Holds().List()[0].Reason, c.reason)
			require.Equal(t, 60, b.count(`select count(*) from firstseen.parked where attempts = 0`))
			require.Positive(t, b.count(
				`select count(*) from firstseen.parked where reason = 'unavailable' and error like '%SQLSTATE%'`))
			require.Zero(t, b.count(`select count(*) from firstseen.dead_letters`))

			b.exec(with(c.mends))
			b.delivered(80)
			require.Equal(t, 80, b.count(`select count(*) from app.ledger`))
			require.Zero(t, b.count(`select count(*) from (
				select "offset" < lag("offset") over (partition by key order by seq) as back from app.ledger) l where back`))
			require.Empty(t, p.Holds().List())
			require.Equal(t, [2]int{1, 1}, [2]int{log.count("waiting: a handler meets"), log.count("goes on again")})
		})
	}
}

func TestAMessageThatAloneMeetsADeploymentsCodeRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(app)
	handler, err := NewSQL(t.Context(), b.pool, "", "app.book")
	require.NoError(t, err)
	p := b.processor(nil, Registration{Name: "h", Handler: handler, Retry: Retry{Base: 1, Cap: 1, MaxAttempts: 3}})
	lanes(t, p)
	require.Equal(t, Result{New: 2, Parked: 1}, b.process(p,
		b.messages("a=v", "bad=sql:select from app.no_such_table", "b=v")))
	siblings := 2
	require.Eventually(t, func() bool {
		siblings++
		require.Equal(t, Result{New: 1}, b.process(p, b.messages(fmt.Sprintf("s%d=v", siblings))), "no sibling waits")
		return b.count(
			`select count(*) from firstseen.dead_letters where reason = 'attempts_exhausted' and attempts = 3`) == 1
	}, 3*time.Minute, time.Millisecond)
	require.Equal(t, siblings, b.count(`select count(*) from app.ledger`))
	require.Empty(t, p.Holds().List())
}

func TestATableThatIsAlteredUnderAStatementCostsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`create table app (id int, note text); insert into app values (1, 'x')`)
	p := b.processor(nil, Registration{Name: "h",
		Handler: Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ dedup.Message) error {
			rows, err := tx.Query(ctx, `select * from app`)
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		}))})
	require.Equal(t, Result{New: 2}, b.process(p, b.messages("a=1", "b=1")))
	b.exec(`alter table app add column more int`)
	require.Equal(t, Result{New: 2}, b.process(p, b.messages("a=1", "b=1")))
}

// receiver is an address that is answered at, or not.
func receiver(t *testing.T) (address string, listen func(http.Handler)) {
	t.Helper()
	port, err := child.FreePort() // which no other test's server is given
	require.NoError(t, err)
	address = child.Loopback(port)
	return address, func(h http.Handler) {
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(h)
		require.NoError(t, server.Listener.Close())
		server.Listener = l
		server.Start()
		t.Cleanup(server.Close)
	}
}

func TestOneMessageOutlivesItsReceiversOutage(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &lockedLog{}
	address, listen := receiver(t)
	hook, err := NewWebhook(WebhookConfig{URL: "http://" + address, AllowPrivate: true})
	require.NoError(t, err)
	p := b.processor(func(cfg *Config) { cfg.Logger = log.logger() },
		Registration{Name: "hook", Detached: hook, Retry: Retry{Base: 1, Cap: 1, MaxAttempts: 2}})
	lanes(t, p)
	b.process(p, b.messages("k=v"))
	require.Eventually(t, func() bool { return log.count("handler failed") >= 6 }, 3*time.Minute, time.Millisecond)
	require.Len(t, p.Holds().List(), 1)
	require.Equal(t, 1, log.count("waiting: calls fail"))
	listen(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.delivered(1)
	require.Equal(t, 0, b.count(`select attempts from firstseen.inbox`))
	require.Empty(t, p.Holds().List())
	require.Equal(t, 1, log.count("goes on again"))
}

func TestWhatOfAReceiversFailuresIsAnOutage(t *testing.T) {
	refused, _ := receiver(t)
	hijacking := func(end func(net.Conn)) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				end(c)
			}
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	answering := func(code int, header ...string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if len(header) > 0 {
				w.Header().Set("Retry-After", header[0])
			}
			w.WriteHeader(code)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = NoLog()
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never says anything
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	var hung atomic.Pointer[chan struct{}]
	hanging := make(chan struct{})
	hung.Store(&hanging)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-*hung.Load() }))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(hanging) })

	const always, unlessSiblingsPass, never = "always", "unless siblings pass", "never"
	for name, c := range map[string]struct{ url, want string }{
		"refused":              {"http://" + refused, always},
		"no such name":         {"http://no-such-host.invalid/", always},
		"refused address":      {"http://localhost:1/", always},
		"unknown certificate":  {secure.URL, always},
		"silent TLS":           {"https://" + silent.Addr().String(), always},
		"429":                  {answering(429), always},
		"503 with Retry-After": {answering(503, "7"), always},
		"503":                  {answering(503), unlessSiblingsPass},
		"502":                  {answering(502), unlessSiblingsPass},
		"504 with Retry-After": {answering(504, "7"), unlessSiblingsPass},
		"reset": {hijacking(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() }),
			unlessSiblingsPass},
		"broken off": {hijacking(func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 200")); _ = c.Close() }),
			unlessSiblingsPass},
		"hangs": {slow.URL, unlessSiblingsPass},
		"500":   {answering(500), never},
		"409":   {answering(409), never},
	} {
		t.Run(name, func(t *testing.T) {
			hook, err := NewWebhook(WebhookConfig{URL: c.url, AllowPrivate: name != "refused address",
				Timeout: 300 * time.Millisecond})
			require.NoError(t, err)
			t.Cleanup(hook.CloseIdleConnections)
			err = hook.Deliver(t.Context(), dedup.Message{Value: []byte("{}")})
			require.Error(t, err)
			got := never
			if errors.As(err, new(*unavailableError)) {
				got = always
			} else if isAway(err) {
				got = unlessSiblingsPass
			}
			require.Equal(t, c.want, got, err)
			if wait := (*afterError)(nil); strings.Contains(name, "Retry-After") {
				require.ErrorAs(t, err, &wait)
				require.Equal(t, 7*time.Second, wait.wait)
			}
		})
	}
}
