package dial

import (
	"context"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// control sets how long sent data may stay unacknowledged (tcp(7), RFC 5482). Keepalive alone does not look at that:
// while data is in flight, no probes are sent.
func control(silence time.Duration) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, network, _ string, raw syscall.RawConn) (err error) {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
		})
		if failed != nil {
			return failed
		}
		return err
	}
}
