package httpjson

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Connections are those of a server, in the order in which they came. Where there are as many as there may be and one
// more comes, the oldest one gives way on which no request is being answered, half-open ones among them: so nobody who
// only opens connections keeps others from their answers. It is safe for concurrent use.
type Connections struct {
	most int

	mu   sync.Mutex
	open []*connection
}

// NewConnections keeps so many open at most.
func NewConnections(most int) *Connections { return &Connections{most: most} }

// Len counts the open ones.
func (s *Connections) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// connection is one that was accepted.
type connection struct {
	net.Conn
	of      *Connections
	answers int // requests that are being answered; of the connections' mutex
}

// limited is a listener whose connections are counted.
type limited struct {
	net.Listener
	connections *Connections
}

// Listener is ln with its connections among these.
func (s *Connections) Listener(ln net.Listener) net.Listener { return &limited{ln, s} }

func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, of: l.connections}
	if old := l.connections.add(c); old != nil {
		_ = old.Close()
	}
	return c, nil
}

// add takes a connection in, and gives the one that has to give way for it; nil: none has to.
func (s *Connections) add(c *connection) (old *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= s.most {
		old = s.open[0]
		for _, o := range s.open {
			if o.answers == 0 {
				old = o
				break
			}
		}
		s.drop(old)
	}
	s.open = append(s.open, c)
	return old
}

func (s *Connections) drop(c *connection) {
	for i, o := range s.open {
		if o == c {
			s.open = append(s.open[:i], s.open[i+1:]...)
			return
		}
	}
}

// Close closes the connection. What was dropped already is closed once more, which does no harm.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.drop(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets a client read the last answer before the connection ends.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type connectionKey struct{}

// Remember has a request know its connection, below TLS: it is an http.Server's ConnContext.
func Remember(ctx context.Context, c net.Conn) context.Context {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = over.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// Answering marks a request's connection while it is answered.
func Answering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.answer(1)
			defer c.answer(-1)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *connection) answer(n int) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.answers += n
}

// Serve answers what comes in at ln, with TLS where the server has a config for it, until the server is shut down.
func Serve(s *http.Server, ln net.Listener) error {
	if s.TLSConfig == nil {
		return s.Serve(ln)
	}
	return s.ServeTLS(ln, "", "")
}
