package crashtest

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Fault is one that was done.
type Fault struct {
	Number int    `json:"number"` // from 1, in its run
	What   string `json:"what"`
	// Missed says that what it was for did not come, like a COMMIT.
	Missed bool `json:"missed,omitempty"`

	open map[place]span // the messages that were sent and not done when it came
}

// meet sends the next messages, has a fault meet them, and puts back in order what it has broken.
func (t *trial) meet(ctx context.Context, k kind, next []sending) error {
	f := &Fault{Number: len(t.run.Faults) + 1, What: string(k)}
	do := t.atOnce
	switch k {
	case killBefore, killAfter, cut, lose:
		do = t.atCommit
	case killCalled:
		do = t.atCall
	}
	err := do(ctx, k, f, next)
	t.run.Faults = append(t.run.Faults, *f)
	return err
}

// atCommit meets the next COMMIT.
func (t *trial) atCommit(ctx context.Context, k kind, f *Fault, next []sending) error {
	do, kills := func() {}, k == killBefore || k == killAfter
	if kills {
		do = t.group.now.kill
	}
	answer := k == killAfter || k == lose
	proxy := t.group.now.proxy
	if err := t.trapped(ctx, f, next, proxy.trap(answer, do), proxy.disarm); err != nil || !kills {
		return err
	}
	return t.group.replace(ctx)
}

// atCall meets the next call of a webhook: what it is for is done, and who has called never knows.
func (t *trial) atCall(ctx context.Context, _ kind, f *Fault, next []sending) error {
	if err := t.trapped(ctx, f, next, t.receiver.Trap(t.group.now.kill), t.receiver.Disarm); err != nil {
		return err
	}
	return t.group.replace(ctx)
}

// trapped sends messages, and waits until a trap that is set has sprung.
func (t *trial) trapped(ctx context.Context, f *Fault, next []sending, met <-chan struct{}, disarm func()) error {
	const patience = 20 * time.Second
	if err := t.send(ctx, next); err != nil {
		return err
	}
	f.open = t.open(ctx)
	select {
	case <-met:
	case <-time.After(patience):
		disarm()
		f.Missed = true
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// atOnce meets messages in the middle of their work: it waits until some of them are done, and then a moment.
func (t *trial) atOnce(ctx context.Context, k kind, f *Fault, next []sending) error {
	const moment = 8 * time.Millisecond
	if err := t.send(ctx, next); err != nil {
		return err
	}
	if err := t.awaitProgress(ctx); err != nil {
		return err
	}
	wait.Sleep(ctx, time.Duration(t.dice.Int64N(int64(moment))))
	f.open = t.open(ctx)
	switch k {
	case kill:
		t.group.now.kill()
		return t.group.replace(ctx)
	case crash:
		return t.s.postgres.Restart(ctx, pgserver.Immediate)
	case backends:
		return t.endBackends(ctx)
	case stop:
		return t.stopAndGoOn(ctx)
	case rebalance:
		return t.rebalance(ctx)
	}
	return fmt.Errorf("there is no fault %q", k)
}

func (t *trial) endBackends(ctx context.Context) error {
	return t.s.do(ctx, pgserver.Superuser, fmt.Sprintf(`select pg_terminate_backend(pid) from pg_stat_activity
		where datname = '%s' and application_name <> '%s'`, t.database, ourName))
}

// stopAndGoOn stops the process, lets another go on in its place, and wakes it: it still thinks that the messages
// are its own. What it holds locked, like a parked message that it was at, the other one can't do before.
func (t *trial) stopAndGoOn(ctx context.Context) error {
	const asleep, awake = 3 * time.Second, 200 * time.Millisecond
	before := t.group.now
	if sigStop != 0 {
		_ = before.Signal(sigStop)
	}
	defer before.end()
	next, err := t.group.start()
	if err != nil {
		return err
	}
	t.group.now = next
	if err := t.group.join(ctx, next); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < asleep && !t.taken(ctx); {
		wait.Sleep(ctx, 10*time.Millisecond)
	}
	if sigStop != 0 {
		_ = before.Signal(sigCont)
	}
	wait.Sleep(ctx, awake)
	before.end()
	return t.group.join(ctx, next) // which it may have joined again
}

// rebalance has a second process join, and the first one leave.
func (t *trial) rebalance(ctx context.Context) error {
	const limit = 20 * time.Second
	before := t.group.now
	next, err := t.group.start()
	if err != nil {
		return err
	}
	t.group.now = next
	defer before.end()
	if err := t.group.join(ctx, next, before.clientID); err != nil {
		return err
	}
	before.Stop(syscall.SIGTERM, limit)
	return t.group.join(ctx, next)
}
