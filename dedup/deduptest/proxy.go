package deduptest

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Proxy passes connections on to a server, until it is told to let them fall silent, as a network does that drops
// packets: nothing arrives any more, in neither direction, and neither side hears of it. Its methods are safe for
// concurrent use.
type Proxy struct {
	// DSN is the one that it was started for, with the proxy's address.
	DSN string

	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string // host:port
	deaf   bool   // new connections are silent too
	last   []byte // the answer that silences the connection that it is for; nil: none does
	closed bool
	pairs  []*pair
}

// pair is a client's connection and the one to the server.
type pair struct {
	client, server net.Conn // server is nil where the proxy is deaf
	silent         bool
}

// NewProxy starts a proxy in front of the DSN's server, which ends with the test.
func NewProxy(t testing.TB, dsn string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("deduptest: start proxy: %v", err)
	}
	p := &Proxy{DSN: through(t, dsn, listener.Addr().(*net.TCPAddr).Port), t: t, listener: listener}
	p.Lead(dsn)
	p.running.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Lead has new connections go to another DSN's server.
func (p *Proxy) Lead(dsn string) {
	p.t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		p.t.Fatalf("deduptest: proxy: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
}

// SilenceOpen has the connections that are open fall silent, for good. New ones work.
func (p *Proxy) SilenceOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.pairs {
		c.silent = true
	}
}

// Silence has all connections fall silent: open ones for good, new ones until Speak. New ones are accepted, as by a
// pooler whose server is gone.
func (p *Proxy) Silence() {
	p.SilenceOpen()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

// SwallowAnswer has the next connection that a server answers on with a command tag, COMMIT say, fall silent for good,
// before the answer arrives. What was asked for is done.
func (p *Proxy) SwallowAnswer(tag string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = append([]byte(tag), 0)
}

// Speak has new connections work again.
func (p *Proxy) Speak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = false
}

// Close ends all connections, and the proxy. The test's end does so too.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.pairs {
		_ = c.client.Close()
		if c.server != nil {
			_ = c.server.Close()
		}
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	c, target := p.admit(client)
	if target == "" {
		_, _ = io.Copy(io.Discard, client)
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil || !p.join(c, server) {
		_ = client.Close()
		return
	}
	p.running.Go(func() { p.pass(c, client, server) })
	p.pass(c, server, client)
}

// admit takes a client in, and gives the address that it is to be passed on to; empty: none.
func (p *Proxy) admit(client net.Conn) (c *pair, target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c = &pair{client: client, silent: p.deaf}
	p.pairs = append(p.pairs, c)
	if p.closed {
		_ = client.Close()
	}
	if p.deaf || p.closed {
		return c, ""
	}
	return c, p.target
}

// join sets the server's side, and says whether the proxy is still there.
func (p *Proxy) join(c *pair, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = server.Close()
		return false
	}
	c.server = server
	return true
}

// pass copies what comes in one direction. The end of one side is the end of the other, unless they are silent.
func (p *Proxy) pass(c *pair, to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		silent := p.falls(c, to, buf[:n])
		switch {
		case err != nil && silent:
			return
		case err != nil:
			_ = to.Close()
			return
		case silent:
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			_ = from.Close()
			return
		}
	}
}

// falls says whether a connection is silent, or falls so before what is to be passed.
func (p *Proxy) falls(c *pair, to net.Conn, text []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && to == c.client && bytes.Contains(text, p.last) {
		c.silent, p.last = true, nil
	}
	return c.silent
}
