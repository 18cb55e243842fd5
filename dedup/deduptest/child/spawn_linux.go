package child

import (
	"runtime"
	"syscall"
)

func attributes(user *User, deathSignal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential: user.credential(),
		Pdeathsig:  deathSignal,
		Setpgid:    true, // a Ctrl-C in the terminal is this process' to handle
	}
}

// run starts the child and waits for its end. The death signal belongs to the thread that forked, not to
// the process (prctl(2), PR_SET_PDEATHSIG), so that thread is kept for as long as the child lives.
func (p *Process) run(_ syscall.Signal, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}
