package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// fault is something that is done to the world, and undone again before it returns.
type fault struct {
	name   string
	weight int
	do     func(context.Context, *round) error
}

// round is one fault's turn.
type round struct {
	*world
	random *rand.Rand
	report *report
}

var faults = []fault{
	{"kill a member", 6, killMember},
	{"end a member", 2, endMember},
	{"stop a member for a while", 3, stopMember},
	{"take a member away, so that the group rebalances", 2, takeMemberAway},
	{"Postgres crashes", 2, crashPostgres},
	{"Postgres is away", 2, postgresAway},
	{"end backends", 5, endBackends},
	{"the way to Postgres falls silent", 2, silence},
	{"connections to Postgres are reset", 2, resetConnections},
	{"kill a broker", 2, killBroker},
	{"restart a broker", 1, restartBroker},
	{"pause", 3, pause},
	{"reload the config", 1, reload},
	{"replay", 2, replay},
	{"rerun", 3, rerun},
	{"redrive", 2, redrive},
	{"look", 2, look},
}

// doFaults does one fault after the other, and two at a time, until ctx ends.
func (w *world) doFaults(ctx context.Context, random *rand.Rand, r *report) {
	done := make(chan struct{})
	for i := range 2 {
		r2 := &round{world: w, random: rand.New(rand.NewPCG(random.Uint64(), uint64(i))), report: r}
		go func() {
			defer func() { done <- struct{}{} }()
			for sleep(ctx, r2.between(2, 8)); ctx.Err() == nil; sleep(ctx, r2.between(1, 5)) {
				r2.doOne(ctx)
			}
		}()
	}
	<-done
	<-done
}

func (r *round) doOne(ctx context.Context) {
	f := r.choose()
	r.report.count(f.name)
	slog.Info("fault", "name", f.name)
	if err := f.do(ctx, r); err != nil && ctx.Err() == nil {
		r.report.fault("%s: %v", f.name, err)
	}
}

func (r *round) choose() fault {
	sum := 0
	for _, f := range faults {
		if f.name == r.o.only {
			return f
		}
		sum += f.weight
	}
	at := r.random.IntN(sum)
	for _, f := range faults {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	panic("no fault has a weight")
}

func (r *round) between(least, most float64) time.Duration {
	return time.Duration((least + r.random.Float64()*(most-least)) * float64(time.Second))
}

func (r *round) member() *member { return r.members[r.random.IntN(len(r.members))] }

func killMember(_ context.Context, r *round) error {
	r.member().signal(syscall.SIGKILL)
	return nil
}

func endMember(_ context.Context, r *round) error {
	r.member().signal(syscall.SIGTERM)
	return nil
}

// stopMember has it stand still, now and then for longer than its session: then another owns its partitions.
func stopMember(ctx context.Context, r *round) error {
	m := r.member()
	m.signal(syscall.SIGSTOP)
	sleep(ctx, r.between(1, 25))
	m.signal(syscall.SIGCONT)
	return nil
}

func takeMemberAway(ctx context.Context, r *round) error {
	m := r.member()
	m.turn(false)
	sleep(ctx, r.between(2, 10))
	m.turn(true)
	return nil
}

func crashPostgres(ctx context.Context, r *round) error {
	return r.pg.Restart(context.WithoutCancel(ctx), pgserver.Immediate)
}

func postgresAway(ctx context.Context, r *round) error {
	if err := r.pg.Stop(pgserver.Immediate); err != nil {
		return err
	}
	sleep(ctx, r.between(1, 12))
	return r.pg.Start(context.WithoutCancel(ctx))
}

func endBackends(ctx context.Context, r *round) error {
	_, err := r.pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
		where backend_type = 'client backend' and application_name <> 'torture' and random() < 0.5`)
	return unlessAway(err)
}

// unlessAway forgives what fails while another fault has Postgres away.
func unlessAway(err error) error {
	if err != nil && !strings.Contains(err.Error(), "SQLSTATE 42") {
		slog.Info("not done, for Postgres is away", "error", err)
		return nil
	}
	return err
}

func silence(ctx context.Context, r *round) error {
	end := r.proxy.silence()
	sleep(ctx, r.between(3, 20))
	end()
	return nil
}

func resetConnections(_ context.Context, r *round) error {
	r.proxy.reset()
	return nil
}

func killBroker(ctx context.Context, r *round) error {
	b := r.kafka.Brokers[r.random.IntN(len(r.kafka.Brokers))]
	b.Kill()
	sleep(ctx, r.between(1, 15))
	return b.Start()
}

func restartBroker(_ context.Context, r *round) error {
	b := r.kafka.Brokers[r.random.IntN(len(r.kafka.Brokers))]
	if err := b.Stop(); err != nil {
		slog.Info("a broker did not end in good order", "error", err)
	}
	return b.Start()
}

// operate runs a command. It may fail, for a server may be away; it may not panic.
func (r *round) operate(ctx context.Context, args ...string) string {
	out, err := r.command(ctx, args...)
	if err != nil && ctx.Err() == nil {
		r.report.count("commands that failed, as they may while a server is away: " + args[0])
		slog.Info("a command failed", "args", strings.Join(args, " "), "error", err, "output", last(out))
	}
	if strings.Contains(out, "panic:") || strings.Contains(out, "goroutine ") {
		r.report.fault("%s: %s", strings.Join(args, " "), out)
	}
	return out
}

func last(text string) string { return text[max(0, len(text)-300):] }

func pause(ctx context.Context, r *round) error {
	what := [][]string{{"topic", orders}, {"handler", "book"}, {"handler", "wild"},
		{"partition", orders + "/" + strconv.Itoa(r.random.IntN(ordersPartitions))}}[r.random.IntN(4)]
	r.operate(ctx, append([]string{"pause", "--why", "torture"}, what...)...)
	sleep(ctx, r.between(2, 10))
	resume := append([]string{"resume", "--why", "torture"}, what...)
	limit := time.Now().Add(commandLimit)
	for ; time.Now().Before(limit); sleep(context.WithoutCancel(ctx), time.Second) {
		if _, err := r.command(context.WithoutCancel(ctx), resume...); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: Postgres has been away for %s", strings.Join(resume, " "), commandLimit)
}

// reload is by SIGHUP, to a member that is up: before that a SIGHUP is its end.
func reload(ctx context.Context, r *round) error {
	r.level.Add(1)
	m := r.member()
	if err := m.configure(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://127.0.0.1:%d/livez", 19_000+m.index), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return nil // it is down, or stopped
	}
	_ = answer.Body.Close()
	m.signal(syscall.SIGHUP)
	return nil
}

func replay(ctx context.Context, r *round) error {
	r.operate(ctx, "replay", orders, "--from", "3m", "--fresh")
	return nil
}

// rerun has echo handle an ID again, that it has handled before.
func rerun(ctx context.Context, r *round) error {
	var id string
	err := r.pool.QueryRow(ctx, `select id from torture.ledger where handler = 'echo'
		and seq > (select max(seq) from torture.ledger) - 20000 order by random() limit 1`).Scan(&id)
	if err != nil {
		return nil // nothing yet, or Postgres is away
	}
	r.noteRerun(id)
	r.operate(ctx, "rerun", "--handler", "echo", "--id", id, "--why", "torture", "--yes")
	return nil
}

// noteRerun remembers that an ID may take effect once more: whether it did is not known where a fault met the command.
func (w *world) noteRerun(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rerun[id]++
}

func redrive(ctx context.Context, r *round) error {
	r.operate(ctx, "dead", "redrive", "--handler", "book", "--why", "torture")
	return nil
}

func look(ctx context.Context, r *round) error {
	lines := []string{"status", "offsets show", "dead list", "inbox list --json", "size",
		"doctor", "conflicts list --json"}
	r.operate(ctx, strings.Fields(lines[r.random.IntN(len(lines))])...)
	return nil
}
