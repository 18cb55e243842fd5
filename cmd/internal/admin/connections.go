package admin

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// maxConnections is how many connections are open at once. Where one more comes the oldest one gives way on which no
// request is being answered, half-open ones among them: so nobody who only opens connections keeps a probe from its
// answer.
const maxConnections = 200

// connections are those of a server, in the order in which they came.
type connections struct {
	most int

	mu   sync.Mutex
	open []*connection
}

// connection is one that was accepted.
type connection struct {
	net.Conn
	of      *connections
	answers int // requests that are being answered; of the connections' mutex
}

// limited is a listener whose connections are counted.
type limited struct {
	net.Listener
	connections *connections
}

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
func (s *connections) add(c *connection) (old *connection) {
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

func (s *connections) drop(c *connection) {
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

// remember has a request know its connection, below TLS.
func remember(ctx context.Context, c net.Conn) context.Context {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = over.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// answering marks a request's connection while it is answered.
func answering(next http.Handler) http.Handler {
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
