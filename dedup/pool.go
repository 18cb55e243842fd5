package dedup

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/migrations/dial"
)

// checkLimit bounds the question to a connection of a pool whether it still leads to the primary, or anywhere.
const checkLimit = 5 * time.Second

// PreparePool has a pool's connections notice what happens to them: call it on the config of a pool that a Store is
// to work on, before the pool is made. silence is how long Postgres or the network may be silent,
// Config.AnswerTimeout's companion; zero or less is 30 seconds.
//
//   - A connection that the network has forgotten ends after silence, and each host of the connection string is tried
//     for a while only: see [dial.Prepare]. It replaces DialFunc.
//   - Only a primary is taken, whichever host answers, unless the connection string has target_session_attrs of its
//     own.
//   - After an answer that a failover gives (read-only, shutting down) each connection is asked, before it is used
//     again, whether its server is still the primary, and closed where it is not. The next one goes where the address
//     leads now.
func PreparePool(conf *pgxpool.Config, silence time.Duration) {
	dial.Prepare(&conf.ConnConfig.Config, silence)
	conf.PingTimeout = min(checkLimit, conf.ConnConfig.ConnectTimeout)
	if conf.ConnConfig.ValidateConnect == nil {
		conf.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	doubts := &doubts{check: conf.ConnConfig.ValidateConnect, onError: conf.ConnConfig.OnPgError,
		prepare: conf.PrepareConn}
	conf.ConnConfig.OnPgError = doubts.hear
	conf.PrepareConn = doubts.settle
}

// closeLimit bounds the wait for connections that do not answer any more: they end without a farewell.
const closeLimit = 3 * time.Second

// ClosePool closes a pool, and waits for that no longer than 3 seconds: what is left of it ends with the program.
func ClosePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeLimit):
	}
}

// doubts are those about a pool's connections: each answer that a failover gives raises all of them anew.
type doubts struct {
	raised  atomic.Int64
	check   pgconn.ValidateConnectFunc
	onError pgconn.PgErrorHandler
	prepare func(context.Context, *pgx.Conn) (bool, error)
}

// hear takes in an error from Postgres.
func (d *doubts) hear(c *pgconn.PgConn, err *pgconn.PgError) bool {
	if failure.Of(err) == failure.ReadOnly || strings.HasPrefix(err.Code, "57P") {
		d.raised.Add(1)
	}
	return d.onError == nil || d.onError(c, err)
}

// settledDoubts is the key of a connection's custom data: the number of doubts that it was last checked after.
const settledDoubts = "firstseen.doubts"

// settle checks a connection before it is used, where there is a doubt that it was not checked after.
func (d *doubts) settle(ctx context.Context, c *pgx.Conn) (bool, error) {
	raised, custom := d.raised.Load(), c.PgConn().CustomData()
	if settled, _ := custom[settledDoubts].(int64); settled != raised {
		ctx, cancel := context.WithTimeout(ctx, checkLimit)
		defer cancel()
		if d.check(ctx, c.PgConn()) != nil {
			return false, nil
		}
		custom[settledDoubts] = raised
	}
	if d.prepare != nil {
		return d.prepare(ctx, c)
	}
	return true, nil
}

// ErrNoAnswer is returned where Postgres, or the way to it, did not answer within Config.AnswerTimeout. It is not
// known what became of what was asked; the connection is closed.
var ErrNoAnswer = db.ErrNoAnswer

// slowest is the least speed, in bytes a second, that is waited for where much is sent or read.
const slowest = 1 << 20

// Answered does something with Postgres within Config.AnswerTimeout, as every round trip of the Store's own is done, and
// a second more for each MiB of so many bytes that are on their way. What has not come to its end by then is ErrNoAnswer.
func (s *Store) Answered(ctx context.Context, bytes int, do func(context.Context) error) error {
	return db.Answered(ctx, s.cfg.AnswerTimeout+time.Duration(bytes)*time.Second/slowest, do)
}
