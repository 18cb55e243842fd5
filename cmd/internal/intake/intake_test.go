package intake

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

// waitFor is how long a test waits for what is to come.
const waitFor = 3 * time.Minute

const shopToken = "a-token-for-the-shop"

// stage is a server over a database of its own, whose handler calls hold for each message.
type stage struct {
	t         *testing.T
	db        *deduptest.DB
	processor *handlers.Processor
	cfg       config.Config
	server    *Server
	hold      func(dedup.Message)
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, db: deduptest.New(t), hold: func(dedup.Message) {}}
	store, err := dedup.Open(t.Context(), s.db.Pool, dedup.Config{Inbox: "shop"})
	require.NoError(t, err)
	var registry handlers.Registry
	require.NoError(t, registry.Add(handlers.Registration{Name: "book", Topics: []string{"orders"},
		Handler: handlers.Each(handlers.HandlerFunc(func(_ context.Context, _ pgx.Tx, m dedup.Message) error {
			s.hold(m)
			return nil
		}))}))
	s.processor, err = handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	require.NoError(t, err)
	s.cfg = config.Config{Topics: []config.Topic{{Name: "orders"}}, Timeouts: config.Timeouts{Drain: waitFor},
		Ingress: config.Ingress{Listen: "127.0.0.1:0", Topics: config.List{"orders"},
			Tokens: map[string]config.Secret{"shop": shopToken}, BodyTimeout: waitFor, WorkTimeout: waitFor}}
	return s
}

func (s *stage) start(live *config.Live) {
	s.t.Helper()
	server, err := Start(s.t.Context(), live, s.processor, slog.New(slog.DiscardHandler))
	require.NoError(s.t, err)
	s.server = server
	s.t.Cleanup(server.Stop)
}

// post sends an order by a client, and gives the answer's status, 0 where there was none, and its protocol.
func (s *stage) post(client *http.Client, scheme, token string, headers ...string) (status int, protocol string) {
	r, err := http.NewRequest(http.MethodPost, scheme+"://"+s.server.Addr().String()+"/v1/topics/orders/messages",
		strings.NewReader(`{"content":1}`))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	_ = response.Body.Close()
	return response.StatusCode, response.Proto
}

// plain keeps no connection that a test would count.
var plain = &http.Client{Timeout: waitFor, Transport: &http.Transport{DisableKeepAlives: true}}

func (s *stage) postPlainly(token string, headers ...string) (status int) {
	status, _ = s.post(plain, "http", token, headers...)
	return status
}

// Lanes that look pauses up have yet to run when the server starts.
func TestWhatIsPausedIsKnownBeforeTheServerListens(t *testing.T) {
	s := newStage(t)
	_, err := s.db.Pool.Exec(t.Context(), `insert into firstseen.pauses (inbox, kind, name, "partition", actor, why)
		values ('shop', 'topic', 'orders', -1, 'ops', 'incident')`)
	require.NoError(t, err)
	s.start(config.Fixed(s.cfg))
	paused, _ := s.processor.Paused("orders", -1)
	require.True(t, paused)
}

// Who comes and goes changes while the server runs, as the config's file does.
func TestTokensAreThoseOfTheMoment(t *testing.T) {
	s := newStage(t)
	path := filepath.Join(t.TempDir(), "firstseen.yaml")
	write := func(token string) {
		require.NoError(t, os.WriteFile(path, []byte(`{postgres: {dsn: "postgres://nobody@127.0.0.1/none"},
kafka: {brokers: ["127.0.0.1:1"]}, group: shop, topics: [{name: orders, handlers: [{name: book, function: none}]}],
ingress: {listen: "127.0.0.1:0", topics: [orders], tokens: {shop: `+token+`}}}`), 0o600))
	}
	write(shopToken)
	live, err := config.Follow(path, nil)
	require.NoError(t, err)
	s.start(live)
	require.Equal(t, http.StatusCreated, s.postPlainly(shopToken))
	write("another-token-for-it")
	ctx, cancel := context.WithCancel(t.Context())
	hup := make(chan os.Signal, 1)
	var following sync.WaitGroup
	following.Go(func() { live.Run(ctx, slog.New(slog.DiscardHandler), hup) })
	defer following.Wait()
	defer cancel()
	hup <- os.Interrupt
	require.Eventually(t, func() bool { return s.postPlainly("another-token-for-it") == http.StatusCreated },
		waitFor, 10*time.Millisecond)
	require.Equal(t, http.StatusUnauthorized, s.postPlainly(shopToken))
}

// A request that is being answered keeps its connection, however many are opened that send nothing, and those keep
// nobody else out.
func TestConnectionsThatSendNothingKeepNobodyOut(t *testing.T) {
	s := newStage(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.hold = func(m dedup.Message) {
		if m.RawID == "slow" {
			close(entered)
			<-leave
		}
	}
	s.start(config.Fixed(s.cfg))
	slow := make(chan int, 1)
	go func() { slow <- s.postPlainly(shopToken, "Idempotency-Key", "slow") }()
	<-entered
	for range maxConnections {
		idle, err := net.Dial("tcp", s.server.Addr().String())
		require.NoError(t, err)
		defer idle.Close()
	}
	require.Equal(t, http.StatusCreated, s.postPlainly(shopToken))
	require.Positive(t, s.server.connections.Len())
	require.LessOrEqual(t, s.server.connections.Len(), maxConnections)
	close(leave)
	require.Equal(t, http.StatusCreated, <-slow)
}

func TestHeadersAreBoundedAndHaveToArrive(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start(config.Fixed(s.cfg))
	slow, err := net.Dial("tcp", s.server.Addr().String())
	require.NoError(t, err)
	defer slow.Close()
	_, err = io.WriteString(slow, "POST /v1/topics/orders/messages HTTP/1.1\r\nHost: ")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, s.postPlainly(shopToken, "X-Long", strings.Repeat("x", 8<<10)))
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge,
		s.postPlainly(shopToken, "X-Long", strings.Repeat("x", 32<<10)))
	require.NoError(t, slow.SetReadDeadline(time.Now().Add(waitFor)))
	_, err = io.ReadAll(slow)
	require.NoError(t, err, "it was cut off")
}

func TestRequestsThatAreOpenAreAnsweredBeforeTheServerStops(t *testing.T) {
	s := newStage(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.hold = func(dedup.Message) { close(entered); <-leave }
	s.start(config.Fixed(s.cfg))
	open := make(chan int, 1)
	go func() { open <- s.postPlainly(shopToken) }()
	<-entered
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.server.Stop() }()
	require.Eventually(t, func() bool { return s.postPlainly(shopToken) == 0 }, waitFor, 10*time.Millisecond)
	select {
	case <-stopped:
		require.Fail(t, "it has stopped before the answer")
	default:
	}
	close(leave)
	require.Equal(t, http.StatusCreated, <-open)
	<-stopped
}
