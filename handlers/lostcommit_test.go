package handlers_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// An announcement whose answer was lost may be counted.
func TestAnnouncementWhoseAnswerIsLostAgainAndAgainCostsNoAttempt(t *testing.T) {
	t.Parallel()
	const lost = 5
	db := deduptest.New(t)
	proxy := newProxy(t, db)
	s := newStageOn(t, db, proxy.dsn)
	s.retry.MaxAttempts = 3
	s.register("h", effect("h"))
	p, ids := s.position("orders"), newIDs(1)
	processor := s.processor()
	result, err := processor.Process(t.Context(),
		handlers.Batch{Position: p, Next: 1, Messages: messages(p, ids...), Apart: true})
	require.NoError(t, err)
	require.Equal(t, handlers.Result{Parked: 1}, result)

	proxy.announced.Store(lost)
	ctx, cancel := context.WithCancel(t.Context())
	var worker sync.WaitGroup
	worker.Go(func() { processor.RunLanes(ctx) })
	require.Eventually(t, func() bool { return s.effects("h") == 1 }, 3*time.Minute, 50*time.Millisecond)
	cancel()
	worker.Wait()
	require.Zero(t, proxy.announced.Load(), "answers that were not lost")
	require.Zero(t, s.count(`select attempts from firstseen.inbox`))
}

// proxy stands between a client and Postgres. While it is told to swallow, it drops the server's word that a
// transaction has committed, and cuts the connection there; or so many times where an attempt was announced in it.
type proxy struct {
	dsn       string
	server    string
	swallow   atomic.Bool
	swallowed atomic.Bool
	announced atomic.Int32
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
	var announces atomic.Bool
	p.running.Go(func() {
		defer server.Close()
		pump(client, server, func(b []byte) bool {
			if bytes.Contains(b, []byte("announce_attempt")) {
				announces.Store(true)
			}
			return true
		})
	})
	pump(server, client, func(b []byte) bool {
		switch {
		case !bytes.Contains(b, []byte("COMMIT\x00")):
			return true
		case p.swallow.Load():
			p.swallowed.Store(true)
			return false
		case announces.Swap(false) && p.announced.Load() > 0:
			p.announced.Add(-1)
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
