package handlers_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

func TestCommitWhoseAnswerWasLostIsFoundOutAndNotDoubled(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	proxy := newProxy(t, db)
	s := newStageOn(t, db, proxy.dsn)
	s.register("h", effect("h"))
	p, ids := s.position("orders"), newIDs(3)
	s.requireResult(handlers.Result{New: 1}, p, messages(p, uuid.New())...) // scopes commit for themselves

	proxy.swallow.Store(true)
	_, err := s.process(p, messages(p, ids...)...)
	require.Error(t, err)
	require.True(t, proxy.swallowed.Load(), "the answer to the commit")
	require.EqualValues(t, 1, p.Next, "not known")

	proxy.swallow.Store(false)
	_, err = s.process(p, messages(p, ids...)...)
	var moved *dedup.MovedError
	require.ErrorAs(t, err, &moved)
	require.EqualValues(t, 4, moved.Next)
	require.Equal(t, 4, s.effects("h"))
	require.Equal(t, 4, s.count(`select count(*) from firstseen.inbox`))

	p.Next = moved.Next
	s.requireResult(handlers.Result{New: 1}, p, messages(p, uuid.New())...)
}

// proxy stands between a client and Postgres. While it is told to swallow, it drops the server's word that a
// transaction has committed, and cuts the connection there.
type proxy struct {
	dsn       string
	server    string
	swallow   atomic.Bool
	swallowed atomic.Bool
	running   sync.WaitGroup
}

func newProxy(t *testing.T, db *deduptest.DB) *proxy {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := url.Parse(db.DSN)
	require.NoError(t, err)
	p := &proxy{server: net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))}
	u.Host = listener.Addr().String()
	p.dsn = u.String()
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.running.Wait()
	})
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.running.Go(func() {
		defer server.Close()
		pump(client, server, func([]byte) bool { return true })
	})
	pump(server, client, func(b []byte) bool {
		if p.swallow.Load() && bytes.Contains(b, []byte("COMMIT\x00")) {
			p.swallowed.Store(true)
			return false
		}
		return true
	})
}

// pump carries bytes for as long as pass says so.
func pump(from io.Reader, to io.Writer, pass func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !pass(buf[:n]) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
