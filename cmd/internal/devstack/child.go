package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/wait"
)

const (
	drainLimit  = 15 * time.Second // for a consumer that was asked to end
	joinPoll    = 50 * time.Millisecond
	maxFailures = 5 // consumers in a row that ended by themselves
)

// consumers is the run's consumer: one process at a time, and another whenever that one dies.
type consumers struct {
	stack *stack
	event func(format string, args ...any)
	path  string

	mu      sync.Mutex
	process *child.Process
	serial  int
	crash   *crash // the last one, until the successor has taken messages
	crashes int
	back    time.Time     // when the last crash was over
	outage  time.Duration // how long that one took
}

// crash is a death of the consumer.
type crash struct {
	number, pid int
	how         string
	at          time.Time
	received    int64 // by the first count after it; negative before
}

func newConsumers(s *stack, event func(string, ...any)) (*consumers, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's file: %w", err)
	}
	return &consumers{stack: s, event: event, path: path}, nil
}

// run keeps a consumer running until ctx ends, and then has it end in good order.
func (c *consumers) run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		process, err := c.start()
		if err != nil {
			return err
		}
		if c.attend(ctx, process); ctx.Err() != nil {
			break
		}
		if killed := c.died(process); killed {
			failures = 0
			continue
		}
		if failures++; failures == maxFailures {
			return fmt.Errorf("the consumer %s, %d times in a row%s",
				ending(process.Err()), failures, child.Tail(c.stack.log()))
		}
		wait.Sleep(ctx, time.Duration(failures)*100*time.Millisecond)
	}
	return nil
}

func (c *consumers) start() (*child.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	text, err := json.Marshal(settings{
		names: c.stack.names, Brokers: []string{c.stack.broker.addr}, DSN: c.stack.dsn, ClientID: c.clientID(),
		Fail: c.stack.options.Fail, Handler: c.stack.options.Handler, Operator: c.stack.operator,
	})
	if err != nil {
		return nil, fmt.Errorf("write the consumer's settings: %w", err)
	}
	c.process, err = child.Start(child.Spec{
		Path: c.path, Args: c.stack.options.Consumer, Env: []string{settingsVariable + "=" + string(text)},
		LogFile: c.stack.log(),
	})
	return c.process, err
}

// clientID tells a consumer from those before it.
func (c *consumers) clientID() string { return fmt.Sprintf("firstseen-dev-consumer-%d", c.serial) }

// attend is with a consumer until it has ended. First it makes room for it in the group.
func (c *consumers) attend(ctx context.Context, p *child.Process) {
	ticks := time.NewTicker(joinPoll)
	defer ticks.Stop()
	joining := ticks.C
	for {
		select {
		case <-p.Done():
			return
		case <-ctx.Done():
			p.Stop(syscall.SIGTERM, drainLimit)
			return
		case <-joining:
			// An error is no matter: it is tried again, and the group expels its dead itself after a while.
			if joined, err := c.stack.broker.expel(ctx, c.clientID()); err == nil && joined {
				joining = nil
			}
		}
	}
}

// died notes an end that nobody asked for, and reports whether a signal brought it about.
func (c *consumers) died(p *child.Process) (killed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.crash != nil {
		c.event("%s; so was its successor, before it took a message", c.crash)
	}
	c.crashes++
	c.crash = &crash{number: c.crashes, pid: p.PID(), how: ending(p.Err()), at: time.Now(), received: -1}
	return bySignal(p.Err())
}

func bySignal(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && !exit.Exited()
}

func ending(err error) string {
	switch {
	case err == nil:
		return "ended by itself"
	case bySignal(err):
		return "was killed"
	}
	return "ended with " + err.Error()
}

func (k *crash) String() string {
	return fmt.Sprintf("crash %d: the consumer with pid %d %s", k.number, k.pid, k.how)
}

// took is told how many messages have been received, and reports when a crash is over.
func (c *consumers) took(received int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch k := c.crash; {
	case k == nil:
	case k.received < 0:
		k.received = received
	case received > k.received:
		c.back, c.outage = time.Now(), time.Since(k.at)
		c.event("%s; pid %d took over within %.1f s", k, c.process.PID(), c.outage.Seconds())
		c.crash = nil
	}
}

// kill ends the consumer as kill -9 does.
func (c *consumers) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		_ = c.process.Signal(syscall.SIGKILL)
	}
}

// fresh is how long a crash that is over is still told of.
const fresh = 3 * time.Second

// state tells the view who runs and how many have died; for how long nobody has taken a message since the last of them,
// and for how long nobody had when its successor did, a moment ago.
func (c *consumers) state() (pid, crashes int, down, back time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		pid = c.process.PID()
	}
	if c.crash != nil {
		down = time.Since(c.crash.at)
	} else if time.Since(c.back) < fresh {
		back = c.outage
	}
	return pid, c.crashes, down, back
}
