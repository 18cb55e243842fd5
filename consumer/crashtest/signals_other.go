//go:build !unix

package crashtest

import "syscall"

// Nothing has a process stand still here.
const (
	sigStop = syscall.Signal(0)
	sigCont = syscall.Signal(0)
)
