//go:build unix

package crashtest

import "syscall"

// What has a process stand still, and go on.
const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)
