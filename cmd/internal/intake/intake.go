// Package intake is the program's server that takes messages in by HTTP: package handlers/ingress over TLS or not, for
// the clients that the config names. Without a client there is no server. A request enters with a bearer token or a
// certificate, and is its holder's, with the tenant that he is of; what comes of it is the ingress's.
//
// Files in reading order: intake.go, clients.go.
package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
)

// The server's limits, beside those that the config says. A client that sends its request slowly is cut off.
const (
	headerTimeout  = 5 * time.Second
	idleTimeout    = 60 * time.Second
	answerTimeout  = 60 * time.Second // beside the time for the body and for the handlers
	maxHeader      = 16 << 10
	maxConnections = 1000
)

// Server takes messages in. A nil Server is one that nobody asked for: nothing comes of Stop.
type Server struct {
	http        *http.Server
	listener    net.Listener
	connections *httpjson.Connections
	serving     sync.WaitGroup
	drain       time.Duration
}

// Start listens where ingress.listen says, and takes messages until Stop is called, which has to be done. It gives nil
// where the config names no address. Clients, their tokens and tenants are those of the moment.
func Start(ctx context.Context, live *config.Live, processor *handlers.Processor, log *slog.Logger) (*Server, error) {
	cfg := live.Load()
	if cfg.Ingress.Listen == "" {
		return nil, nil
	}
	handler, err := newHandler(live, processor, log)
	if err != nil {
		return nil, err
	}
	tls, err := cfg.Ingress.TLS(log)
	if err == nil {
		err = processor.LookUpPauses(ctx) // before anything is processed
	}
	if err != nil {
		return nil, fmt.Errorf("start ingress: %w", err)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Ingress.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen at ingress.listen: %w", err)
	}
	connections := httpjson.NewConnections(maxConnections)
	s := &Server{listener: ln, connections: connections, drain: cfg.Timeouts.Drain, http: &http.Server{
		Handler:           httpjson.Answering(handler),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout + cfg.Ingress.BodyTimeout, IdleTimeout: idleTimeout,
		WriteTimeout:   cfg.Ingress.BodyTimeout + cfg.Ingress.WorkTimeout + answerTimeout,
		MaxHeaderBytes: maxHeader, TLSConfig: tls, ConnContext: httpjson.Remember,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	s.serving.Go(func() {
		err := httpjson.Serve(s.http, connections.Listener(ln))
		if !errors.Is(err, http.ErrServerClosed) {
			log.Error("the ingress ended", "error", err)
		}
	})
	log.Info("ingress listens", "address", ln.Addr().String(), "tls", tls != nil, "topics", len(cfg.Ingress.Topics))
	return s, nil
}

func newHandler(live *config.Live, processor *handlers.Processor, log *slog.Logger) (http.Handler, error) {
	settings, err := live.Load().ForIngress()
	if err != nil {
		return nil, err
	}
	settings.Processor, settings.Logger = processor, log
	settings.Caller = func(r *http.Request) (ingress.Caller, error) { return caller(r, live.Load().Ingress) }
	return ingress.New(settings)
}

// Addr is the server's address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Stop takes no request any more, and lets those that are open end, for as long as open batches may.
func (s *Server) Stop() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.drain)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	s.serving.Wait()
}
