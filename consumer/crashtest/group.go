package crashtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/wait"
)

// process is one consumer, with its own way to Postgres.
type process struct {
	*child.Process
	proxy    *proxy
	clientID string
}

// group is the processes of one run: one, and for moments two.
type group struct {
	s        *stack
	broker   *broker
	database string
	told     Member // what all are told
	now      *process
	serial   int
	failures int // ends in a row that nobody asked for
}

// maxFailures are ends of a consumer by itself, in a row, that are put up with: it may be that Postgres was away.
const maxFailures = 5

// start starts a process, which is not waited for.
func (g *group) start() (_ *process, err error) {
	g.serial++
	p := &process{clientID: fmt.Sprintf("%s-%d", g.database, g.serial)}
	p.proxy, err = newProxy(net.JoinHostPort("127.0.0.1", strconv.Itoa(g.s.postgres.Port())))
	if err != nil {
		return nil, err
	}
	told := g.told
	told.ClientID, told.Brokers = p.clientID, g.broker.addrs
	if told.DSN, err = g.s.through(g.database, p.proxy.addr()); err != nil {
		return nil, err
	}
	env, err := told.environment()
	if err == nil {
		command := g.s.config.Command
		p.Process, err = child.Start(child.Spec{Path: command.Path, Args: command.Args,
			Env: append(command.Env[:len(command.Env):len(command.Env)], env), LogFile: g.s.log()})
	}
	if err != nil {
		p.proxy.close()
		return nil, fmt.Errorf("start a consumer: %w", err)
	}
	return p, nil
}

// replace starts a process in the place of the one that is there, and waits until the group is its own.
func (g *group) replace(ctx context.Context) error {
	next, err := g.start()
	if err != nil {
		return err
	}
	before := g.now
	g.now = next
	if before != nil {
		before.end()
	}
	return g.join(ctx, next)
}

var errNotJoined = errors.New("it does not join a group under the client ID that it is told")

// join waits until a process, and with it no other but those named, is in the group.
func (g *group) join(ctx context.Context, p *process, others ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepLimit, errNotJoined)
	defer cancel()
	for {
		joined, err := g.broker.settleMembers(ctx, append(others, p.clientID)...)
		if err == nil && joined {
			return nil
		}
		select {
		case <-p.Done():
			return nil // attend says so
		default:
		}
		if !wait.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("the consumer: %w%s", context.Cause(ctx), g.tail())
		}
	}
}

// attend puts another in the place of a process that has ended by itself. One that does so again and again is an
// error.
func (g *group) attend(ctx context.Context) error {
	select {
	case <-g.now.Done():
	default:
		return nil
	}
	if g.failures++; g.failures >= maxFailures {
		return fmt.Errorf("the consumer ended by itself, %d times in a row, %w: %s", g.failures, ended(g.now.Err()),
			lastLine(g.tail()))
	}
	wait.Sleep(ctx, time.Duration(g.failures)*100*time.Millisecond)
	return g.replace(ctx)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func ended(err error) error {
	if err == nil {
		return errors.New("with exit code 0")
	}
	return err
}

func (g *group) tail() string {
	g.s.failed = true
	return child.Tail(g.s.log())
}

// close ends the process that is there, as kill -9 does: what it was to do is done.
func (g *group) close() {
	if g.now != nil {
		g.now.end()
	}
}

func (p *process) end() {
	p.Stop(syscall.SIGKILL, time.Minute)
	p.proxy.close()
}

func (p *process) kill() { _ = p.Signal(syscall.SIGKILL) }
