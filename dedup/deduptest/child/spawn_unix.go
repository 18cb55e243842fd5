//go:build unix && !linux

package child

import (
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// watchdog waits for the end of its input, which comes when this process is gone, and then ends the
// child. A line of input ends the watchdog alone.
const watchdog = `read line || kill -"$1" "$2"`

func attributes(user *User, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential: user.credential(),
		Setpgid:    true, // a Ctrl-C in the terminal is this process' to handle
	}
}

// run starts the child and its watchdog and waits for both.
func (p *Process) run(deathSignal syscall.Signal, started chan<- error) {
	err := p.cmd.Start()
	if err != nil {
		started <- err
		return
	}
	dog, line := p.watch(deathSignal)
	started <- nil
	p.err = p.cmd.Wait()
	if dog != nil {
		_, _ = io.WriteString(line, "\n")
		_ = line.Close()
		_ = dog.Wait()
	}
	close(p.done)
}

// watch starts the watchdog, or none where the system has no shell.
func (p *Process) watch(deathSignal syscall.Signal) (*exec.Cmd, io.WriteCloser) {
	dog := exec.Command("/bin/sh", "-c", watchdog, "watchdog",
		strconv.Itoa(int(deathSignal)), strconv.Itoa(p.PID()))
	dog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	line, err := dog.StdinPipe()
	if err != nil {
		return nil, nil
	}
	if err := dog.Start(); err != nil {
		_ = line.Close()
		return nil, nil
	}
	return dog, line
}
