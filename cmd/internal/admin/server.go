// Package admin is the program's HTTP server: probes and health, metrics, and the admin API, by which an operator sees
// how the program is, looks at messages and dead letters, and pauses, redrives and discards. Requests enter; what they
// ask for is done by methods of operate.Inbox, the same as the command line calls, and what they may is decided in
// access.go. The table of operations in routes.go is the whole API: huma reads their input, and makes the OpenAPI
// document, by their types.
//
// Files in reading order: server.go, connections.go, access.go, dispatch.go (how a call waits for its turn),
// routes.go, operations.go (what is told to huma), inputs.go, serve_look.go, serve_change.go, probes.go, health.go.
package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/cmd/internal/telemetry"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// Config is what a Server is made with.
type Config struct {
	// Live is the program's config. What may change while it runs is taken from it for each request. Required.
	Live *config.Live
	// Version is what the program calls itself.
	Version string
	// Pool is for asking Postgres whether it is there. Required.
	Pool *pgxpool.Pool
	// Metrics answers /metrics. Nil: there are none.
	Metrics http.Handler
	// Holds has what the start waits for. Nil: nothing does.
	Holds *holds.Registry
	// Logger is told of changes, refusals and failures. Default slog.Default().
	Logger *slog.Logger
}

// Parts are what the server tells about. They are there once Postgres was reached.
type Parts struct {
	Inbox *operate.Inbox
	// Memory is what the answers count on, together with what the consumer holds of messages. Default none: nobody
	// counts.
	Memory *memory.Account
	// Status and Totals are those of the consumer and the processor. They are asked all the time, and must not wait.
	Status func() consumer.Status
	Totals func() handlers.Totals
	// Window is what the processor did lately. Somebody else runs it.
	Window *telemetry.Window
}

// Server answers requests. It is safe for concurrent use. A nil Server is one that nobody asked for: nothing comes of
// Attach and Stop.
type Server struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	tls     *tls.Config
	http    *http.Server
	ln      net.Listener
	parts   atomic.Pointer[Parts]

	lifetime context.Context // of what Start begins
	cancel   context.CancelFunc
	ending   context.Context // ends when the program begins to
	loops    sync.WaitGroup

	connections connections

	openapi    []byte
	operations byPath
	failures   *httpjson.Failures
	admitted   httpjson.Bucket // requests of clients that are known
	refused    httpjson.Bucket // and of others, which must not use up the first
	reads      chan struct{}
	changes    chan struct{}
	answers    chan struct{} // of reads, that are in memory: who reads slowly holds one

	liveness liveness
	health   healthCache
	patience time.Duration // with a request's header
}

// The server's limits. A client that sends its request slowly is cut off.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 15 * time.Second
	writeTimeout  = 60 * time.Second
	idleTimeout   = 60 * time.Second
	maxHeader     = 16 << 10
	stopTimeout   = 5 * time.Second
	maxAnswers    = 4
)

// New makes a Server, which reads its certificates here and listens from Start on.
func New(cfg Config) (*Server, error) {
	if cfg.Live == nil || cfg.Pool == nil {
		return nil, errors.New("new admin server: a config and a pool are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Server{cfg: cfg, log: cfg.Logger, started: time.Now(), failures: httpjson.NewFailures(cfg.Logger),
		reads: make(chan struct{}, 1), changes: make(chan struct{}, 1), answers: make(chan struct{}, maxAnswers),
		patience: headerTimeout, connections: connections{most: maxConnections}}
	var err error
	if s.tls, err = cfg.Live.Load().HTTP.TLS(); err != nil {
		return nil, fmt.Errorf("new admin server: %w", err)
	}
	s.operations = byPath{}
	api := newAPI(s.operations, cfg.Version)
	addOperations(api)
	if s.openapi, err = json.MarshalIndent(api.OpenAPI(), "", "  "); err != nil {
		return nil, fmt.Errorf("new admin server: %w", err)
	}
	return s, nil
}

// Attach tells the server, which has started, of the parts, once they are there.
func (s *Server) Attach(p Parts) {
	if s == nil {
		return
	}
	s.parts.Store(&p)
}

// Start listens where http.listen says, and answers until Stop is called, which has to be done. Once ctx has ended the
// program is no longer ready.
func (s *Server) Start(ctx context.Context) error {
	address := s.cfg.Live.Load().HTTP.Listen
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen at http.listen: %w", err)
	}
	s.ending = ctx
	s.lifetime, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.ln = ln
	s.http = &http.Server{
		Handler:           answering(s.handler()),
		ReadHeaderTimeout: s.patience, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, TLSConfig: s.tls,
		BaseContext: func(net.Listener) context.Context { return s.lifetime }, ConnContext: remember,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.liveness.beat(time.Now())
	s.loops.Go(func() { s.watch(s.lifetime) })
	s.loops.Go(func() {
		if err := s.accept(&limited{ln, &s.connections}); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the admin server ended", "error", err)
		}
	})
	s.log.Info("admin server listens", "address", s.ln.Addr().String(), "tls", s.tls != nil)
	return nil
}

func (s *Server) accept(ln net.Listener) error {
	if s.tls == nil {
		return s.http.Serve(ln)
	}
	return s.http.ServeTLS(ln, "", "")
}

// Addr is where the server listens, once it has started.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Stop lets open requests end, for some seconds, and returns when nothing of the server runs any more.
func (s *Server) Stop() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.cancel()
		_ = s.http.Close()
	}
	s.cancel()
	s.loops.Wait()
}

// status is the consumer's, also before there is one.
func (s *Server) status() (consumer.Status, *Parts) {
	if p := s.parts.Load(); p != nil {
		return p.Status(), p
	}
	return consumer.Status{State: consumer.Starting, Since: s.started, Holds: s.cfg.Holds.List()}, nil
}
