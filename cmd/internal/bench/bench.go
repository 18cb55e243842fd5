// Package bench measures firstseen on a real Kafka and a durable Postgres, against what people would use in its place
// and against the limits of the two. Options enter, a table leaves, and the same figures as JSON.
//
// Contenders run in rounds, one after the other in each round and each time in another order; a ratio is taken within
// a round, where the machine was the same for both, and the median of the rounds counts.
package bench

//go:generate env FIRSTSEEN_UPDATE_GOLDEN=1 go test -count=1 -run ChartIsDrawn .

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Options says what to measure. The zero value measures every suite in full, in about 25 minutes.
type Options struct {
	// Suites are the suites to run, by name. Default all; all but growth where Quick is set.
	Suites []string
	// Quick makes every suite small: figures that show a change of a half, not of a tenth.
	Quick bool
	// Large adds what takes hours: growth up to 50 million IDs.
	Large bool
	// Peers is the directory of the module of peers. Where it is missing their cases are left out, and that is said.
	Peers string
	// Out gets the table and what is going on. Default io.Discard.
	Out io.Writer
	// JSON, if set, gets one Result a line.
	JSON io.Writer
	// Chart, if set, gets a picture of the ratios (SVG).
	Chart io.Writer
}

// suite is one row of questions.
type suite struct {
	name  string
	about string // what is measured, against what
	run   func(ctx context.Context, l *lab) error
	slow  bool // too slow for Quick
}

// suites in the order in which they run: what needs an empty machine first.
var suites = []suite{
	{name: "end-to-end", about: "Kafka to one row per message to offsets, against peers", run: endToEnd},
	{name: "limit", about: "the same, against what Postgres alone can take", run: limit},
	{name: "accept", about: "Postgres' side alone, against raw COPY of the same rows", run: accept},
	{name: "replay", about: "a topic of which all was seen before, against one that is new", run: replayTwice},
	{name: "fetch", about: "reading and decoding alone, against other clients", run: fetch},
	{name: "many-partitions", about: "500 partitions, against 4", run: manyParts},
	{name: "scale", about: "two and four instances with a handler that waits, against one", run: scale},
	{name: "latency", about: "the time from produce to commit in Postgres", run: latency},
	{name: "memory", about: "memory at the top rate, allocations for a message", run: memory},
	{name: "failing", about: "batches of which some messages fail, against none", run: failing},
	{name: "lanes", about: "draining parked messages", run: lanes},
	{name: "http", about: "requests with an idempotency key, against the handler without one and peers", run: httpOnce},
	{name: "outbox", about: "an outbox's messages to Kafka, against raw produce and other relays", run: sendOutbox},
	{name: "size", about: "bytes of an ID, all in, and of a message in the inbox", run: size},
	{name: "growth", about: "accept beside a memory of up to 20 million IDs", run: growth, slow: true},
}

// Names lists the suites, each with what it measures.
func Names() (names, about []string) {
	for _, s := range suites {
		names, about = append(names, s.name), append(about, s.about)
	}
	return names, about
}

// Run measures. It starts Kafka and Postgres, and leaves nothing behind. An error means that something could not be
// measured; a goal that is missed is a result.
func Run(ctx context.Context, o Options) ([]Result, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	chosen, err := choose(o)
	if err != nil {
		return nil, err
	}
	l, err := openLab(ctx, o)
	if err != nil {
		return nil, err
	}
	defer l.close()
	for _, s := range chosen {
		l.begin(s)
		if err := s.run(ctx, l); err != nil {
			return l.results, fmt.Errorf("suite %s: %w%s", s.name, err, l.postgresEnded(ctx))
		}
	}
	if o.Chart != nil {
		err = drawChart(o.Chart, l.results)
	}
	return l.results, err
}

// Check says whether the options can be measured at all.
func (o Options) Check() error {
	_, err := choose(o)
	return err
}

func choose(o Options) (chosen []suite, err error) {
	names, _ := Names()
	var unknown []string
	for _, name := range o.Suites {
		if !slices.Contains(names, name) {
			unknown = append(unknown, strconv.Quote(name))
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("no suite is called %s; there are %s", strings.Join(unknown, " or "),
			strings.Join(names, ", "))
	}
	for _, s := range suites {
		byDefault := len(o.Suites) == 0 && (!o.Quick || !s.slow)
		if byDefault || slices.Contains(o.Suites, s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}
