package dial_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/migrations/dial"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }

func TestSocketsOfPreparedConnectionsGiveUpOnASilentNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		silence                     time.Duration
		user, idle, interval, count int
	}{
		"default": {0, 30_000, 10, 5, 4},
		"shorter": {12 * time.Second, 12_000, 4, 2, 4},
		"least":   {time.Second, 1_000, 1, 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			fd := dialed(t, c.silence)
			require.Equal(t, c.user, option(t, fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT))
			require.Equal(t, 1, option(t, fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE))
			require.Equal(t, c.idle, option(t, fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE))
			require.Equal(t, c.interval, option(t, fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL))
			require.Equal(t, c.count, option(t, fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT))
		})
	}
}

func TestServerIsAskedToNoticeASilentClient(t *testing.T) {
	conf, err := pgconn.ParseConfig(deduptest.NewDatabase(t))
	require.NoError(t, err)
	called := false
	conf.AfterConnect = func(context.Context, *pgconn.PgConn) error { called = true; return nil }
	dial.Prepare(conf, 12*time.Second)
	conn, err := pgconn.ConnectConfig(t.Context(), conf)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	require.True(t, called, "the caller's own hook")
	for name, want := range map[string]string{
		"tcp_keepalives_idle": "4", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "4",
		"tcp_user_timeout": "12000",
	} {
		results, err := conn.Exec(t.Context(), "show "+name).ReadAll()
		require.NoError(t, err)
		require.Equal(t, want, string(results[0].Rows[0][0]), name)
	}
}

func TestEachHostIsTriedForAWhileOnly(t *testing.T) {
	for dsn, want := range map[string]time.Duration{
		"postgres://127.0.0.1/db":                   10 * time.Second,
		"postgres://127.0.0.1/db?connect_timeout=3": 3 * time.Second,
	} {
		conf, err := pgconn.ParseConfig(dsn)
		require.NoError(t, err)
		dial.Prepare(conf, 0)
		require.Equal(t, want, conf.ConnectTimeout)
	}
	conf, err := pgconn.ParseConfig("postgres://127.0.0.1/db")
	require.NoError(t, err)
	dial.Prepare(conf, 4*time.Second)
	require.Equal(t, 4*time.Second, conf.ConnectTimeout)
}

// dialed gives the socket of a connection to a listener.
func dialed(t *testing.T, silence time.Duration) net.Conn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	conf, err := pgconn.ParseConfig("postgres://127.0.0.1/db")
	require.NoError(t, err)
	dial.Prepare(conf, silence)
	conn, err := conf.DialFunc(context.Background(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func option(t *testing.T, conn net.Conn, level, name int) (value int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }))
	require.NoError(t, err)
	return value
}
