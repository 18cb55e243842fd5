// Command torture runs `firstseen run` as a user does, does to it all that its README says it survives, and holds what
// took effect against what is in Kafka.
//
//	torture -firstseen bin/firstseen -for 30m
//
// It judges by nothing that firstseen says: a producer and a reader of its own (franz-go) know what was sent, and a
// ledger table without any unique index, which handlers in SQL write to, knows what took effect. Of firstseen it
// imports the kits alone that start Postgres and Kafka.
//
// Files in reading order: main.go, world.go (servers, schema, config), producer.go, member.go, fault.go, proxy.go,
// loss.go, oracle.go.
//
// With -loss 2 it runs in a network namespace of its own, where two of a hundred packets are lost, all the time and on
// all connections. That needs Linux, root or user namespaces, and netem or nft.
//
// Exit codes: 0 everything took effect once and in order, 1 it did not (each fault is listed), 2 it could not be run,
// 3 it was skipped, for packets can't be lost here.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"time"
)

type options struct {
	firstseen string
	duration  time.Duration
	settle    time.Duration
	members   int
	brokers   int
	rate      int
	seed      uint64
	dir       string
	report    string
	only      string
	loss      float64
}

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	var o options
	flag.StringVar(&o.firstseen, "firstseen", "bin/firstseen", "the program under test")
	flag.DurationVar(&o.duration, "for", 30*time.Minute, "how long faults go on")
	flag.DurationVar(&o.settle, "settle", 5*time.Minute,
		"how long it may stand still at the end before that is a fault")
	flag.IntVar(&o.members, "members", 2, "members of the group")
	flag.IntVar(&o.brokers, "brokers", 3, "brokers of the cluster")
	flag.IntVar(&o.rate, "rate", 400, "messages a second")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()),
		"of the order of faults; timing differs all the same")
	flag.StringVar(&o.dir, "dir", "", "for configs and logs; default a temporary directory, removed where all is well")
	flag.StringVar(&o.report, "report", "", "file for the report as JSON")
	flag.StringVar(&o.only, "only", "", "one fault's name: that one alone, again and again")
	flag.Float64Var(&o.loss, "loss", 0, "lose so many `percent` of all packets, in a network namespace of its own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if o.loss > 0 && os.Getenv(alone) == "" {
		code, err := inNamespace(ctx)
		exitOn(err)
		os.Exit(code)
	}
	report, err := torture(ctx, o)
	exitOn(err)
	report.print(os.Stdout)
	if o.report != "" {
		text, _ := json.MarshalIndent(report, "", "  ")
		if err := os.WriteFile(o.report, append(text, '\n'), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "torture:", err)
		}
	}
	if len(report.Faults) > 0 {
		os.Exit(1)
	}
}

// exitOn ends the program where there is an error.
func exitOn(err error) {
	switch {
	case err == nil:
	case errors.Is(err, errNoLoss):
		fmt.Fprintln(os.Stderr, "torture: skipped:", err)
		os.Exit(3)
	default:
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(2)
	}
}

// torture sets the world up, lets traffic and faults go on for a while, mends everything, and judges.
func torture(ctx context.Context, o options) (*report, error) {
	w, err := newWorld(ctx, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	slog.Info("torture begins", "seed", o.seed, "for", o.duration, "dir", w.dir)
	began := time.Now()
	r := &report{Seed: o.seed, Done: map[string]int{}, Dead: map[string]int{}}

	var members, traffic sync.WaitGroup
	running, end := context.WithCancel(ctx)
	for _, m := range w.members {
		members.Go(func() { m.keep(running, r) })
	}
	busy, calm := context.WithTimeout(ctx, o.duration)
	p, err := newProducer(w, rand.New(rand.NewPCG(o.seed, 1)))
	if err != nil {
		calm()
		end()
		return nil, err
	}
	traffic.Go(func() { p.run(busy, o.rate) })
	traffic.Go(func() { w.watchDead(busy, r) })
	w.doFaults(busy, rand.New(rand.NewPCG(o.seed, 2)), r)
	traffic.Wait()
	calm()

	err = w.settle(ctx, p, r)
	end()
	members.Wait()
	p.client.Close()
	if err != nil {
		return nil, err
	}
	r.Packets = w.way.lost(ctx)
	r.Seconds = time.Since(began).Seconds()
	w.keep = len(r.Faults) > 0
	return r, nil
}
