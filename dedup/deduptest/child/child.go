// Package child runs the servers that tests and the demo need (Postgres, PgBouncer, Kafka) as children of
// this process.
//
// In comes a command line; out comes a [Process] that ends no later than this process does, also when
// this one is killed. With it comes what such a server needs around it: its files from a cache that
// several processes fill at once ([Cache]), a directory of its own ([NewScratch]), a port that stays
// free while the server is down ([FreePort]), and a user to run as where it refuses root
// ([Unprivileged]).
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Spec says what to run.
type Spec struct {
	// Path is the program's file; Args are its arguments, without the program's name.
	Path string
	Args []string
	// Env is added to this process' environment.
	Env []string
	// Dir is the working directory. Default this process'.
	Dir string
	// LogFile gets standard output and standard error, appended. Default none: both are dropped.
	LogFile string
	// User is who the child runs as. Default this process' user.
	User *User
	// DeathSignal is sent to the child when this process is gone. Default SIGKILL.
	DeathSignal syscall.Signal
}

// Process is a running child. Its methods are safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; read after done is closed
	stop sync.Mutex
}

// Start starts the child. On Linux the kernel ends the child together with this process; elsewhere a
// watchdog shell does, as long as nobody kills that too.
func Start(spec Spec) (*Process, error) {
	cmd := spec.command()
	if spec.LogFile != "" {
		log, err := openLog(spec.LogFile)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", spec.Path, err)
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(spec.deathSignal(), started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	return p, nil
}

// Run runs a command to its end, as a child like those of [Start]. The error of one that fails has the
// last lines of its LogFile.
func Run(spec Spec, limit time.Duration) error {
	p, err := Start(spec)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-time.After(limit):
		p.Stop(syscall.SIGKILL, time.Second)
		return fmt.Errorf("run %s: not done after %s%s", spec.Path, limit, Tail(spec.LogFile))
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("run %s: %w%s", spec.Path, err, Tail(spec.LogFile))
	}
	return nil
}

func (s Spec) command() *exec.Cmd {
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.SysProcAttr = attributes(s.User, s.deathSignal())
	return cmd
}

func (s Spec) deathSignal() syscall.Signal {
	if s.DeathSignal == 0 {
		return syscall.SIGKILL
	}
	return s.DeathSignal
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the child ended: nil for exit code 0, and nil while it runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Await repeats try, at each interval, until it gives no error. It gives up where the child ends, and says how, and
// where ctx does, with the last error and that of ctx.
func (p *Process) Await(ctx context.Context, interval time.Duration, try func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errors.Join(errors.New("it ended"), p.Err())
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w (%w)", err, ctx.Err())
		case <-tick.C:
		}
	}
}

// Signal sends a signal to a child that runs; to one that has ended it does nothing.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s to %s: %w", sig, p.cmd.Path, err)
	}
	return nil
}

// Stop sends the signal and waits for the child's end, which SIGKILL brings about once the limit is
// over. It reports whether SIGKILL was needed for that.
func (p *Process) Stop(sig syscall.Signal, limit time.Duration) (killed bool) {
	p.stop.Lock()
	defer p.stop.Unlock()
	_ = p.Signal(sig)
	select {
	case <-p.done:
		return false
	case <-time.After(limit):
	}
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
	return true
}
