// Package crashtest finds out whether handlers do each message once while everything around them breaks: it is
// `firstseen crashtest`, and consumertest.CrashTest for handlers in Go.
//
// In come a sample of messages, SQL that makes the handlers' tables, and a command line that starts a consumer
// ([Config]). What leaves is a [Result]: the same, or the rows that differ. On a Postgres and a broker that it
// brings itself, each run has a database of its own. Two runs without faults say what is right, and which columns
// no message determines. Each run after them has one kind of fault, and the last ones have all kinds at once; then
// the tables must hold the same rows. Nothing in the verdict is the consumer's word but that it is done: rows are
// read from the handlers' tables.
//
// Webhooks are called here: a receiver on loopback keeps what they are sent, and that is compared as a table is. What
// the user's receiver does can be a function in the schema, which is called with each call's key and body.
//
// Faults come by a plan that a seed makes, at stages of the work and not by the clock where that can be: a proxy
// before Postgres ends a process as its COMMIT passes by. So a run with the same seed and number meets the same
// faults again, within what the timing of processes allows.
//
// Files in reading order: crashtest.go, message.go (samples), member.go (what a consumer is told, and does for it),
// plan.go (which faults when), stack.go (servers and databases), broker.go, proxy.go, group.go (processes),
// trial.go (one run), webhook.go (what webhooks call), fault.go, rows.go (what tables hold), differ.go (what
// differs), cause.go (of which message it seems to be), look.go (what the schema says by itself), result.go, and
// report.go (text, JSON, JUnit).
package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/firstseen/firstseen/migrations"
)

// Config says what is tried. Command, and messages, are required.
type Config struct {
	// Messages are the sample, each once, in the order in which they are right.
	Messages []Message
	// Schema is SQL that makes the handlers' tables and functions, on a database that has firstseen's schema. It is
	// sent as one script, so what can't be in a transaction can't be in it.
	Schema string
	// FirstseenSchema is the schema of firstseen's own tables. Default migrations.DefaultSchema.
	FirstseenSchema string
	// Command starts a consumer, which reads by [Here] what it is to do and consumes until SIGTERM. It may be
	// killed at any time.
	Command Command
	// Webhooks are the handlers that post to a URL: each has [Member.Webhook] for it instead of its own.
	Webhooks []Webhook
	// Faults is the number of faults, over all runs. Default 30.
	Faults int
	// Seed makes the plan. Default: by chance.
	Seed uint64
	// Only is the number of the one run to do, beside those without faults. Default: all.
	Only int
	// All goes on after a run that differs. Default: that one is the last.
	All bool
	// Tables are those to compare, as schema.table. Default: all but firstseen's own and those of extensions.
	Tables []string
	// Exclude are columns that are not compared, as schema.table.column.
	Exclude []string
	// ExcludeDefaults leaves out the columns that Postgres fills in by itself from a sequence, a clock or at random.
	ExcludeDefaults bool
	// Positions are topics whose messages are known by their positions: a copy is another message there, so none is
	// sent.
	Positions []string
	// Partitions is each topic's number of them, in runs that mix the order across keys. With 1 none does. Default 4.
	Partitions int
	// PostgresVersion is the major version to run. Default the newest.
	PostgresVersion string
	// Brokers are those of a Kafka that is to be used, on which the sample's topics are created and deleted again;
	// those that are there already are an error. Default: one in this process.
	Brokers []string
	// Settle bounds the time that a run may go on without any progress, all faults being over. Default 60 s.
	Settle time.Duration
	// Tell gets a line of text for each step. Default: nobody is told.
	Tell func(line string)
}

// Command is a command line.
type Command struct {
	Path string
	Args []string
	// Env is added to this process' environment.
	Env []string
}

// OfThisProgram is this program with other arguments.
func OfThisProgram(args ...string) (Command, error) {
	path, err := os.Executable()
	if err != nil {
		return Command{}, fmt.Errorf("find this program's file: %w", err)
	}
	return Command{Path: path, Args: args}, nil
}

// Run does all runs and tells what came of them. An error is one of the sample, the schema, the handlers' first run or
// the machine, and no verdict. Whatever it returns, everything that it started has ended.
func Run(ctx context.Context, c Config) (_ *Result, err error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	began := time.Now()
	s, err := openStack(ctx, &c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := &Result{Seed: c.Seed, Messages: len(c.Messages)}
	if err := s.runAll(ctx, r); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(began).Seconds()
	r.judge()
	return r, nil
}

func (c *Config) prepare() error {
	var faults []error
	if len(c.Messages) == 0 {
		faults = append(faults, errors.New("there is no message in the sample"))
	}
	for i := range c.Messages {
		if c.Messages[i].Topic == "" {
			faults = append(faults, fmt.Errorf("message %d has no topic", i+1))
		}
	}
	if c.Command.Path == "" {
		faults = append(faults, errors.New("there is no command that starts a consumer"))
	}
	if c.FirstseenSchema == "" {
		c.FirstseenSchema = migrations.DefaultSchema
	}
	if c.Faults <= 0 {
		c.Faults = 30
	}
	if c.Partitions <= 0 {
		c.Partitions = 4
	}
	if c.Settle <= 0 {
		c.Settle = time.Minute
	}
	if c.Seed == 0 {
		c.Seed = newSeed()
	}
	if c.Tell == nil {
		c.Tell = func(string) {}
	}
	return errors.Join(faults...)
}

// runAll does the runs without faults, then those of the plan.
func (s *stack) runAll(ctx context.Context, r *Result) error {
	right, err := s.learn(ctx, r)
	if err != nil {
		return err
	}
	plans := plan(s.config)
	r.Planned = len(plans)
	for _, p := range plans {
		if s.config.Only != 0 && s.config.Only != p.number {
			continue
		}
		run, err := s.try(ctx, p, right)
		if err != nil {
			return err
		}
		r.Runs = append(r.Runs, *run)
		s.tell("run %d of %d: %s", p.number, len(plans), run.line())
		if run.differs() && !s.config.All {
			return nil
		}
	}
	return nil
}

func (s *stack) tell(format string, args ...any) { s.config.Tell(fmt.Sprintf(format, args...)) }
