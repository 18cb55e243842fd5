package admin

import (
	"fmt"
	"net"
	"slices"
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

func (s *stage) opened() int {
	s.server.connections.mu.Lock()
	defer s.server.connections.mu.Unlock()
	return len(s.server.connections.open)
}

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

func TestAConnectionWhoseRequestIsBeingAnsweredDoesNotGiveWay(t *testing.T) {
	c := &connections{most: 3}
	all := make([]*connection, 5)
	for i := range all {
		all[i] = &connection{of: c}
	}
	require.Nil(t, c.add(all[0]))
	all[0].answer(1)
	require.Nil(t, c.add(all[1]))
	require.Nil(t, c.add(all[2]))
	require.Same(t, all[1], c.add(all[3]), "the oldest that answers nothing")
	all[2].answer(1)
	all[3].answer(1)
	require.Same(t, all[0], c.add(all[4]), "the oldest, where all do")
	require.Equal(t, 3, len(c.open))
	require.True(t, slices.Contains(c.open, all[4]))
}

func TestConnectionsThatAreClosedCountNoLonger(t *testing.T) {
	s := unstarted(t, nil)
	s.start()
	s.get("/livez")
	half := s.dial("")
	require.Eventually(t, func() bool { return s.opened() == 2 }, time.Minute, 10*time.Millisecond)
	s.client.CloseIdleConnections()
	require.NoError(t, half.Close())
	require.Eventually(t, func() bool { return s.opened() == 0 }, time.Minute, 10*time.Millisecond)
}
