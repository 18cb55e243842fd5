package consumertest

import (
	"net"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// NewTampered is a fake broker whose answers pass through a function, which may change them or, by returning false,
// have the connection break in the middle of one.
func NewTampered(t testing.TB, through func(answer []byte) bool) *Fake {
	listen := func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return tamperedListener{l, through}, err
	}
	return NewFake(t, kfake.ListenFn(listen))
}

type tamperedListener struct {
	net.Listener
	through func([]byte) bool
}

func (l tamperedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return tamperedConn{c, l.through}, err
}

type tamperedConn struct {
	net.Conn
	through func([]byte) bool
}

func (c tamperedConn) Write(answer []byte) (int, error) {
	answer = slices.Clone(answer)
	if c.through(answer) {
		return c.Conn.Write(answer)
	}
	_, _ = c.Conn.Write(answer[:len(answer)/2])
	return 0, c.Close()
}
