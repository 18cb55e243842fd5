package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/google/uuid"
)

// httpCase is a service and the keys that it is asked with.
type httpCase struct {
	name    string
	peer    string // among the peers; empty: firstseen's own program
	service string
	keys    string // fresh, none or again
}

// The cases that others are measured against, or that are reported by name.
const (
	plainHandler = "own transaction"
	createOnce   = "in the transaction"
	replayOnce   = "replay"
	withoutKey   = "without a key"
	claimOnce    = "claimed"
)

var httpCases = []httpCase{
	{name: plainHandler, service: ownTransaction, keys: "none"},
	{name: createOnce, service: inTransaction, keys: "fresh"},
	{name: replayOnce, service: inTransaction, keys: "again"},
	{name: withoutKey, service: inTransaction, keys: "none"},
	{name: claimOnce, service: claimed, keys: "fresh"},
	{name: "key table", peer: "key-table", keys: "fresh"},
	{name: "key table, tuned", peer: "key-table-tuned", keys: "fresh"},
	{name: "fiber", peer: "fiber", keys: "fresh"},
}

// clientCounts are the numbers of clients that ask at once.
var clientCounts = []int{1, 8, 64}

// httpBench is services that run, what they were asked, and what came of it.
type httpBench struct {
	l       *lab
	running map[string]*running // by the service's name
	kept    keptKeys
	created int
	tails   map[string]map[string]series // case → p50, p99 → ms; of the clients' count at work
}

// httpOnce asks services, each a process of its own with a pool of its own, over connections that are kept, in turns
// shorter than a machine's moods. Each inserts one row of effects for a request, in a transaction that is durable
// before the answer is sent.
func httpOnce(ctx context.Context, l *lab) error {
	d, err := l.database(ctx)
	if err != nil {
		return err
	}
	defer l.drop(d)
	b := &httpBench{l: l, running: map[string]*running{}}
	defer b.close()
	cases, err := b.start(ctx, d)
	if err != nil {
		return err
	}
	if err := b.keep(ctx, clientCounts[len(clientCounts)-1]); err != nil {
		return err
	}
	for _, n := range clientCounts {
		if err := b.measure(ctx, cases, n); err != nil {
			return fmt.Errorf("%d clients: %w", n, err)
		}
	}
	return d.expectEffects(ctx, b.created)
}

func (c httpCase) program() string {
	if c.peer != "" {
		return c.peer
	}
	return c.service
}

// start has the services of all cases listen.
func (b *httpBench) start(ctx context.Context, d *database) (cases []httpCase, err error) {
	withPeers := b.l.hasPeers()
	for _, c := range httpCases {
		if c.peer != "" && !withPeers {
			continue
		}
		cases = append(cases, c)
		if b.running[c.program()] != nil {
			continue
		}
		r, err := b.l.serve(ctx, c.peer, job{DSN: d.dsn, Service: c.program()})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		b.running[c.program()] = r
	}
	return cases, nil
}

func (b *httpBench) close() {
	for _, r := range b.running {
		r.close()
	}
}

// keep has keys answered that clients ask with again.
func (b *httpBench) keep(ctx context.Context, n int) error {
	each := b.l.pick(16, 2)
	c := newClients(b.running[inTransaction].address, 1, noKeys)
	defer c.close()
	b.kept = make(keptKeys, n)
	for i := range n * each {
		key := uuid.NewString()
		if _, err := c.post(ctx, key); err != nil {
			return err
		}
		b.kept[i%n] = append(b.kept[i%n], key)
	}
	b.created += n * each
	return nil
}

func (b *httpBench) keying(c httpCase) keying {
	switch c.keys {
	case "again":
		return b.kept.again
	case "fresh":
		return freshKeys
	}
	return noKeys
}

// measure has n clients ask each of the cases in turn.
func (b *httpBench) measure(ctx context.Context, cases []httpCase, n int) error {
	b.tails = map[string]map[string]series{}
	var contenders []contender
	for _, c := range cases {
		b.tails[c.name] = map[string]series{}
		asking := newClients(b.running[c.program()].address, n, b.keying(c))
		defer asking.close()
		contenders = append(contenders, contender{c.name, func() (float64, error) { return b.turn(ctx, c, asking) }})
	}
	all, err := interleave(b.l.pick(21, 2), contenders...)
	if err != nil {
		return err
	}
	return b.report(cases, n, all)
}

// turn has clients ask for a while, and gives the rate of answers.
func (b *httpBench) turn(ctx context.Context, c httpCase, asking *clients) (float64, error) {
	d := time.Duration(b.l.pick(400, 80)) * time.Millisecond
	if err := b.ask(ctx, c, asking, d/8, nil); err != nil { // warms up
		return 0, err
	}
	var h heard
	if err := b.ask(ctx, c, asking, d, &h); err != nil {
		return 0, err
	}
	tails := b.tails[c.name]
	for _, tail := range tailShares[:2] {
		tails[tail.name] = append(tails[tail.name], milliseconds(percentile(h.answers, tail.share)))
	}
	return h.rate(), nil
}

// ask counts what was created, and sees that a case whose keys come again creates nothing.
func (b *httpBench) ask(ctx context.Context, c httpCase, asking *clients, d time.Duration, into *heard) error {
	h, err := asking.ask(ctx, d)
	if err != nil {
		return err
	}
	want := 0
	if c.keys == "again" {
		want = len(h.answers)
	}
	if h.replayed != want {
		return fmt.Errorf("%d of %d answers were given before, and not %d", h.replayed, len(h.answers), want)
	}
	b.created += len(h.answers) - h.replayed
	if into != nil {
		*into = h
	}
	return nil
}

func (b *httpBench) report(cases []httpCase, n int, all map[string]series) error {
	with := func(name string) string { return fmt.Sprintf("%s, %s", name, asked(n)) }
	plain, once := b.tails[plainHandler], b.tails[createOnce]
	results := []Result{
		plain["p50"].result(with("p50, "+plainHandler), "ms"),
		once["p50"].against(plain["p50"], with("p50, "+createOnce), "ms", plainHandler).atMost(1.25),
		plain["p99"].result(with("p99, "+plainHandler), "ms"),
		once["p99"].against(plain["p99"], with("p99, "+createOnce), "ms", plainHandler),
		all[replayOnce].against(all[createOnce], with(replayOnce), "req/s", createOnce).atLeast(5),
	}
	for _, c := range cases {
		switch c.name {
		case replayOnce, createOnce:
		case withoutKey, claimOnce:
			results = append(results, all[c.name].against(all[plainHandler], with(c.name), "req/s", plainHandler))
		default:
			results = append(results, all[createOnce].against(all[c.name], with(createOnce), "req/s", c.name))
		}
	}
	return b.l.report(results...)
}

func asked(clients int) string {
	if clients == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", clients)
}

// running is a contender that answers HTTP requests until it is closed.
type running struct {
	address string
	close   func()
}

// serve starts a contender that serves. The name of firstseen's own is empty, others are peers'.
func (l *lab) serve(ctx context.Context, name string, j job) (*running, error) {
	program, args, err := l.program(ctx, name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return nil, err
	}
	r := &running{close: func() {
		_ = in.Close()
		_ = cmd.Wait()
	}}
	var said listening
	err = errors.Join(json.NewEncoder(in).Encode(j), json.NewDecoder(out).Decode(&said))
	if err != nil {
		r.close()
		return nil, err
	}
	r.address = said.Address
	return r, nil
}
