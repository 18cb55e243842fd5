package admin

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dial opens a connection that sends a text and then nothing.
func (s *stage) dial(text string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.server.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	_, err = fmt.Fprint(c, text)
	require.NoError(s.t, err)
	return c
}

func (s *stage) opened() int { return s.server.connections.Len() }

func TestConnectionsThatAreHalfOpenKeepNoProbeFromItsAnswer(t *testing.T) {
	s := unstarted(t, nil)
	s.server.patience = time.Hour // no time limit ends them
	s.start()
	for i := range 600 {
		s.dial([]string{"", "G", "GET /livez HTTP/1.1\r\nX: "}[i%3])
		if i%100 == 0 {
			s.client.CloseIdleConnections()
			s.get("/livez")
		}
	}
	s.client.CloseIdleConnections()
	s.get("/livez")
	require.LessOrEqual(t, s.opened(), 200)
}

func TestConnectionsThatAreClosedCountNoLonger(t *testing.T) {
	s := unstarted(t, nil)
	s.start()
	s.get("/livez")
	half := s.dial("")
	require.Eventually(t, func() bool { return s.opened() == 2 }, 3*time.Minute, 10*time.Millisecond)
	s.client.CloseIdleConnections()
	require.NoError(t, half.Close())
	require.Eventually(t, func() bool { return s.opened() == 0 }, 3*time.Minute, 10*time.Millisecond)
}
