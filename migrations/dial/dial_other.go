//go:build !linux

package dial

import (
	"context"
	"syscall"
	"time"
)

// control does nothing where there is no TCP_USER_TIMEOUT: keepalive, and the limits of round trips, remain.
func control(time.Duration) func(context.Context, string, string, syscall.RawConn) error { return nil }
