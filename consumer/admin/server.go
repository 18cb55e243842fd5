// Package admin is the HTTP side of a [service.Service]: the admin API, by which an operator sees how the program is,
// looks at messages and dead letters, and pauses, redrives, discards and reruns; a page on which it can be tried; and a server
// that has it with the probes and metrics. Requests enter; what they ask for is done by methods of operate.Inbox, the
// same as the command line calls, and what they may is decided in access.go, by service.Settings: closed to other hosts
// by default. The table of operations in routes.go is the whole API: huma reads their input, and makes the OpenAPI
// document, by their types.
//
// [NewAPI] is an http.Handler for a server of yours; [New] is a server, with limits to what slow and many clients can do.
// huma asks a variable of its own, huma.NewErrorWithContext, what errors look like: this package wraps what is there
// for its own operations, in its init. A program that sets that variable later has these operations' errors as well.
//
// Files in reading order: server.go, api.go, access.go, dispatch.go (how a call waits for its turn), routes.go,
// operations.go (what is told to huma), inputs.go, fields.go, serve_look.go, serve_content.go, serve_value.go,
// serve_change.go, serve_jobs.go, serve_reruns.go.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/firstseen/firstseen/consumer/page"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

// Config configures a Server. Service and Listen are required.
type Config struct {
	// Service is what the server tells about, and by whose settings requests are let through. Required.
	Service *service.Service
	// Listen is the address to listen at, host:port. Required.
	Listen string
	// TLS has the server speak TLS. Certificates of clients are asked for as it says. Default: plain HTTP.
	TLS *tls.Config
	// Metrics answers /metrics, open to all. Default: there are none.
	Metrics http.Handler
	// Page has the operator's page at /ui/, for whom the API lets in: see package page. Default: there is none.
	Page bool
	// Logger is told of changes, refusals and failures. Default: the service's.
	Logger *slog.Logger
}

// Server answers requests: the probes, metrics and the API. It is safe for concurrent use. A nil Server is one that
// nobody asked for: nothing comes of Stop.
type Server struct {
	cfg      Config
	log      *slog.Logger
	api      *API
	page     *page.Page // nil: there is none
	http     *http.Server
	ln       net.Listener
	cancel   context.CancelFunc // of requests' contexts
	loops    sync.WaitGroup
	patience time.Duration // with a request's header

	connections *httpjson.Connections
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
	// maxConnections caps the open connections: a probe is answered whoever opens others.
	maxConnections = 200
)

// New makes a Server, which listens from Start on.
func New(cfg Config) (*Server, error) {
	if cfg.Service == nil || cfg.Listen == "" {
		return nil, errors.New("new admin server: a service and an address to listen at are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = cfg.Service.Config().Logger
	}
	api, err := newAPI(cfg.Service, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("new admin server: %w", err)
	}
	s := &Server{cfg: cfg, log: cfg.Logger, api: api, patience: headerTimeout,
		connections: httpjson.NewConnections(maxConnections)}
	if cfg.Page {
		if s.page, err = page.New(page.Config{API: s.asked(), Logger: s.log}); err != nil {
			return nil, fmt.Errorf("new admin server: %w", err)
		}
	}
	return s, nil
}

// asked is what the page asks: the API, and the probes.
func (s *Server) asked() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", s.cfg.Service.Probes())
	mux.Handle("/", s.api)
	return mux
}

// handler is all that the server answers.
func (s *Server) handler() http.Handler {
	mux, probes := http.NewServeMux(), s.cfg.Service.Probes()
	for _, path := range []string{"/livez", "/readyz", "/healthz"} {
		mux.Handle(path, probes)
	}
	if s.cfg.Metrics != nil {
		mux.Handle("/metrics", httpjson.Methods{http.MethodGet: s.cfg.Metrics.ServeHTTP})
	}
	mux.Handle("/", s.api.mux())
	if s.page != nil {
		mux.Handle("/ui/", http.StripPrefix("/ui", visited(s.page)))
		mux.HandleFunc("/ui", toPage)
	}
	return s.api.survive(mux)
}

// toPage leads to the page by an address that is relative, for there may be a proxy's path before it.
func toPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "ui/")
	w.WriteHeader(http.StatusPermanentRedirect)
}

// Start listens where Config.Listen says, and answers until Stop is called, which has to be done.
func (s *Server) Start(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return err // it says at which address
	}
	lifetime, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.ln, s.cancel = ln, cancel
	s.http = &http.Server{
		Handler:           httpjson.Answering(s.handler()),
		ReadHeaderTimeout: s.patience, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, TLSConfig: s.cfg.TLS,
		BaseContext: func(net.Listener) context.Context { return lifetime }, ConnContext: httpjson.Remember,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.loops.Go(func() {
		if err := httpjson.Serve(s.http, s.connections.Listener(ln)); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the admin server ended", "error", err)
		}
	})
	s.log.Info("admin server listens", "address", s.ln.Addr().String(), "tls", s.cfg.TLS != nil)
	return nil
}

// Addr is the server's address, once it has started.
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
