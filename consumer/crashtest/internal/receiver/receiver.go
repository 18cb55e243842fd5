// Package receiver stands for the receivers of webhooks in a crash test: a server on loopback that keeps what it is
// sent and, where it is told to, swallows answers, delays them, refuses calls and resets connections. What a
// receiver does with a call is [Config.Handle].
//
// Files in reading order: receiver.go, fault.go (what it does to a call).
package receiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config says what a receiver does.
type Config struct {
	// Handle does what is to be done for a call. Its error is the answer: 422 for a [RefusedError], else 500. It may
	// be called from several goroutines. Default: nothing is done.
	Handle func(ctx context.Context, c *Call) error
	// Fails has calls fail now and then, by Seed.
	Fails bool
	Seed  uint64
}

// RefusedError says that trying again is no use.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Call is one that was received.
type Call struct {
	Handler   string // of the path
	Topic     string
	Partition int32
	Offset    int64
	Tenant    string
	Key       string // the Idempotency-Key
	RawID     string // the producer's ID, where it is another text than the key
	Body      []byte // nil: null
	// Early is for Config.Handle to say that it came before its message was accepted.
	Early bool
}

// Receiver is a server. It is safe for concurrent use.
type Receiver struct {
	cfg    Config
	server *http.Server
	url    string
	ended  chan struct{}
	calls  sync.WaitGroup // that are under way
	serves sync.WaitGroup

	mu     sync.Mutex
	closed bool
	done   []Call // handled, in order
	trap   *trap  // nil: none is set
	faults faults
}

// trap is for the next call that is handled.
type trap struct {
	do  func()
	met chan struct{}
}

// callLimit bounds what is done for a call: who made it may be gone.
const callLimit = 30 * time.Second

// Open starts a receiver, which is to be closed.
func Open(cfg Config) (*Receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the receiver of webhooks: %w", err)
	}
	r := &Receiver{cfg: cfg, url: "http://" + listener.Addr().String(), ended: make(chan struct{})}
	r.faults.turn = cfg.Seed
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: callLimit}
	r.serves.Go(func() { _ = r.server.Serve(listener) }) // until Close
	return r, nil
}

// URL is where calls go to, less a slash and the handler's name.
func (r *Receiver) URL() string { return r.url }

// Trap has the next call be handled and not answered; do is called in between, and then met is closed. It replaces
// the trap before.
func (r *Receiver) Trap(do func()) (met <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap = &trap{do, make(chan struct{})}
	return r.trap.met
}

// Disarm takes the trap away.
func (r *Receiver) Disarm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap = nil
}

// Close ends the server. What was being done for calls is done when it returns.
func (r *Receiver) Close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.ended)
	}
	r.mu.Unlock()
	_ = r.server.Close()
	r.serves.Wait()
	r.calls.Wait()
}

// Calls are those that were handled, in order.
func (r *Receiver) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[:len(r.done):len(r.done)]
}

// ServeHTTP takes a call: all of it is read before anything happens to it.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.enter() {
		panic(http.ErrAbortHandler)
	}
	defer r.calls.Done()
	c, err := read(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fault := r.choose(c.Key)
	if fault.before {
		r.meet(w, req, fault)
		return
	}
	if err := r.handle(c); err != nil {
		r.refused()
		http.Error(w, err.Error(), status(err))
		return
	}
	if t := r.keep(c); t != nil {
		t.do()
		close(t.met)
		panic(http.ErrAbortHandler) // which closes the connection
	}
	r.meet(w, req, fault)
}

// enter says whether calls are taken still.
func (r *Receiver) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.calls.Add(1)
	}
	return !r.closed
}

func (r *Receiver) handle(c *Call) error {
	if r.cfg.Handle == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return r.cfg.Handle(ctx, c)
}

func status(err error) int {
	if errors.As(err, new(*RefusedError)) {
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}

// keep notes that a call is handled, and gives the trap that was set for it.
func (r *Receiver) keep(c *Call) (t *trap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, *c)
	t, r.trap = r.trap, nil
	return t
}

// read reads a call.
func read(req *http.Request) (c *Call, err error) {
	h := req.Header
	c = &Call{Handler: strings.TrimPrefix(req.URL.Path, "/"), Key: h.Get("Idempotency-Key")}
	for name, to := range map[string]*string{"Topic": &c.Topic, "Tenant": &c.Tenant, "Raw-Id": &c.RawID} {
		if *to, err = url.PathUnescape(h.Get("X-Firstseen-" + name)); err != nil {
			return nil, fmt.Errorf("read X-Firstseen-%s: %w", name, err)
		}
	}
	partition, err := strconv.ParseInt(h.Get("X-Firstseen-Partition"), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read X-Firstseen-Partition: %w", err)
	}
	c.Partition = int32(partition)
	if c.Offset, err = strconv.ParseInt(h.Get("X-Firstseen-Offset"), 10, 64); err != nil {
		return nil, fmt.Errorf("read X-Firstseen-Offset: %w", err)
	}
	if c.Body, err = io.ReadAll(req.Body); err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	if h.Get("X-Firstseen-Null") != "" {
		c.Body = nil
	}
	return c, nil
}
