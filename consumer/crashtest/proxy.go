package crashtest

import (
	"bytes"
	"net"
	"sync"
)

// proxy stands between one consumer and Postgres. It ends a connection at the COMMIT of a batch, where a trap is
// set, and does something at the same moment.
type proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu     sync.Mutex
	open   map[*pair]struct{}
	set    *trap // nil: none is
	closed bool
}

// pair is a client's connection and the one to Postgres.
type pair struct {
	client, server net.Conn
	caught         *trap // its COMMIT has passed, and the answer must not
}

// trap is for the next COMMIT: it is not to arrive or, with answer, is not to be answered.
type trap struct {
	answer bool
	do     func()
	met    chan struct{}
}

func newProxy(target string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, target: target, open: map[*pair]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// trap sets one, which replaces that before; met is closed once it has sprung.
func (p *proxy) trap(answer bool, do func()) (met <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = &trap{answer: answer, do: do, met: make(chan struct{})}
	return p.set.met
}

// disarm takes the trap away.
func (p *proxy) disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = nil
	for c := range p.open {
		c.caught = nil
	}
}

// close ends all connections, and the proxy.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.end()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (c *pair) end() {
	_ = c.client.Close()
	_ = c.server.Close()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &pair{client: client, server: server}
	if !p.admit(c) {
		return
	}
	p.running.Go(func() { p.pass(c, server, client, commitText, p.request) })
	p.pass(c, client, server, commitTag, p.answer)
	p.forget(c)
}

func (p *proxy) admit(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.end()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

// forget sets a trap again whose connection has ended in another way.
func (p *proxy) forget(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	if c.caught != nil && p.set == nil {
		p.set = c.caught
	}
}

// pass copies what comes in one direction, until one of the sides or a trap ends it.
func (p *proxy) pass(c *pair, to, from net.Conn, word []byte, look func(*pair, []byte) *trap) {
	defer c.end()
	buf := make([]byte, 32<<10)
	kept := 0 // bytes of before, for the word may come in two pieces
	for {
		n, err := from.Read(buf[kept:])
		if err != nil {
			return
		}
		if t := look(c, buf[:kept+n]); t != nil {
			t.do()
			c.end()
			close(t.met)
			return
		}
		if _, err := to.Write(buf[kept : kept+n]); err != nil {
			return
		}
		kept = copy(buf, buf[max(0, kept+n-len(word)+1):kept+n]) // less than the word, which was looked at
	}
}

// How a batch ends, and how Postgres says that it has.
var (
	commitText = []byte("seal(); commit")
	commitTag  = []byte("COMMIT\x00")
	failedTag  = []byte("ROLLBACK\x00")
)

func (p *proxy) request(c *pair, text []byte) *trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil || !bytes.Contains(text, commitText) {
		return nil
	}
	t := p.set
	p.set = nil
	if t.answer {
		c.caught = t
		return nil
	}
	return t
}

func (p *proxy) answer(c *pair, text []byte) *trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := c.caught
	switch {
	case t == nil:
	case bytes.Contains(text, commitTag):
		c.caught = nil
		return t
	case bytes.Contains(text, failedTag):
		p.set, c.caught = t, nil
	}
	return nil
}
