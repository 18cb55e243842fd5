package main

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
)

// proxy stands between the members and Postgres. Silenced, it takes what is sent and hands nothing on, as a network
// that loses packets does; nobody is told. Connections that met it stay dead, new ones pass once it is over.
type proxy struct {
	listener net.Listener
	target   string // host:port
	dsn      string // by way of the proxy

	silent atomic.Int64 // bumped by each silence: connections of before are lost
	quiet  atomic.Bool  // new ones get no answer either

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func newProxy(dsn string) (*proxy, error) {
	to, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: to.Host, open: map[net.Conn]struct{}{}}
	to.Host = l.Addr().String()
	p.dsn = to.String()
	go p.serve()
	return p, nil
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		born := p.silent.Load()
		p.track(client, server)
		go p.pump(client, server, born)
		go p.pump(server, client, born)
	}
}

func (p *proxy) track(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = struct{}{}
	}
}

// pump hands on from one to the other while it may. What came during a silence is lost.
func (p *proxy) pump(from, to net.Conn, born int64) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		lost := p.quiet.Load() || p.silent.Load() != born
		if n > 0 && !lost {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			if lost {
				return // not even the end is heard of
			}
			break
		}
	}
	p.hangUp(from, to)
}

func (p *proxy) hangUp(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.open, c)
	}
}

// silence begins one, and the returned function ends it for connections made after it.
func (p *proxy) silence() (end func()) {
	p.quiet.Store(true)
	p.silent.Add(1)
	return func() { p.quiet.Store(false) }
}

// reset breaks all connections off.
func (p *proxy) reset() {
	p.mu.Lock()
	conns := p.open
	p.open = map[net.Conn]struct{}{}
	p.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.reset()
}
