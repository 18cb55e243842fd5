// Package dial has connections to Postgres notice that the network has fallen silent. Packets may be dropped without a
// word to either side: by a firewall that has forgotten the connection, a host that lost its power, a failover that
// moved an address. Without limits of its own a program then waits for as long as the kernel does, a quarter of an
// hour or more.
//
// [Prepare] is for every connection of the program; pools of consumers have more in package dedup. [Advise] says what to
// set where there is none.
package dial

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Silence is the time that the other side may be silent where nothing else is said.
const Silence = 30 * time.Second

// connectLimit bounds the attempt at one host where the connection string has no connect_timeout.
const connectLimit = 10 * time.Second

// Prepare sets how a connection is dialed: it ends when what was sent is not acknowledged for so long, or, while it
// waits for an answer, probes are not (TCP_USER_TIMEOUT on Linux, and keepalive). Each host of the connection string
// is tried for connect_timeout, 10 seconds by default, or for silence where that is less, and then the next. Zero or
// less is Silence. The server is asked for the same: else it would keep the locks of a client that it can't hear any
// more for two hours. It replaces DialFunc, and comes before AfterConnect. Unix sockets need none of this.
func Prepare(conf *pgconn.Config, silence time.Duration) {
	if silence <= 0 {
		silence = Silence
	}
	if conf.ConnectTimeout <= 0 {
		conf.ConnectTimeout = min(connectLimit, silence)
	}
	dialer := &net.Dialer{Timeout: conf.ConnectTimeout, KeepAliveConfig: keepAlive(silence),
		ControlContext: control(silence)}
	conf.DialFunc = dialer.DialContext
	after := conf.AfterConnect
	conf.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		// What is no Postgres may not know these; a broken connection is found out by the next statement.
		_, _ = conn.Exec(ctx, serverSide(silence)).ReadAll()
		if after == nil {
			return nil
		}
		return after(ctx, conn)
	}
}

// serverSide sets the server's keepalive for the session (Postgres manual, "Connection Settings").
func serverSide(silence time.Duration) string {
	k := keepAlive(silence)
	return fmt.Sprintf(`set tcp_keepalives_idle = %d; set tcp_keepalives_interval = %d; set tcp_keepalives_count = %d; set tcp_user_timeout = %d`,
		int(k.Idle.Seconds()), int(k.Interval.Seconds()), k.Count, silence.Milliseconds())
}

// keepAlive ends a connection within silence: a third of it until the first probe, and then four probes.
func keepAlive(silence time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{
		Enable:   true,
		Idle:     max(time.Second, silence/3),
		Interval: max(time.Second, silence/6),
		Count:    4,
	}
}
