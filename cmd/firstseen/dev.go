package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/devstack"
)

const devHelp = `Runs firstseen in front of you: an embedded Postgres and an embedded Kafka broker, a producer, and a
consumer that you are invited to crash. There is nothing to install or to set up, and nothing is left running.

It prints the address of a page at once. In a browser you see the stream there as it flows, what the balance should be
and what it is, and there are buttons that kill the consumer, send the last messages again and make the handler fail.
The page is for this machine only. So is the operator's page, which is linked there: it is the one of firstseen run.

The producer sends account movements to a topic, keyed by account. A share of them is sent again:

  twins       a second copy right behind the first, in the same request
  resends     a copy some time later, under a new offset
  redelivery  the same offsets again: whenever the consumer is killed after it committed to Postgres and
              before it committed its offsets to Kafka, the broker delivers those messages once more

The consumer books each movement: it inserts a row and increments a balance, in a table without a unique key and
without a look at what is there. A message that took effect twice would show, in the rows and in the sum.

The consumer is a process of its own. Kill it whenever you like: it is started again and goes on. --crash-every does
that for you, with SIGKILL, at random moments.

The numbers are not the consumer's own. Each is read where it can't be wrong:

  produced    messages that the broker confirmed to the producer, copies included; unique is without them
  received    messages that the consumer took through committed transactions; one that is delivered again counts
              again. A trigger on the positions in Postgres adds up by how much each transaction moves them
  new         rows in the inbox
  duplicates  received, less new
  effects     rows in the movements table
  balance     the sum over all accounts; what is expected is the sum of the unique movements below the offsets
              that the consumer has reached, by the producer's ledger
  lag         end offsets less the group's committed offsets

A group waits for a member that was killed until its session times out, for 12 s here. So as not to have you wait
too, dev removes the dead member from the group as soon as its successor asks to join.

With --outbox the handler books nothing: it adds each movement to an outbox, a relay sends it to a second topic, and a second
consumer books it. All three are in the process that is killed. Then new counts what the first consumer has seen, and lag what both
have before them.

--kafka and --postgres put real ones in the place of the embedded. The topic, the group and the schemas then get
names that nobody else has, and are listed at the end; nothing else is touched.

When the time of --for is over, or after Ctrl-C, nothing more is sent, the consumer catches up, and the result is
checked. Exit code 0 says that every movement took effect once: effects = unique, the balance is the expected
one, and no lag is left. A second Ctrl-C ends it at once, unchecked.

Memory stays level; Postgres' data grows by about 2 GB an hour at the default rate.`

const devExamples = `  firstseen dev
  firstseen dev --for 20s --crash-every 4s
  firstseen dev --for 20s --crash-every 4s --summary json
  firstseen dev --outbox --for 20s --crash-every 4s --rate 500
  firstseen dev --kafka localhost:9092 --postgres postgres://me@localhost/test`

// newDev is the dev subcommand: a first look that checks itself.
func newDev() *cobra.Command {
	o := devstack.Options{Out: os.Stderr, In: os.Stdin, Consumer: []string{"dev", "consumer"}}
	var summary string
	cmd := &cobra.Command{
		Use:     "dev",
		Short:   "See it work: a demo with a consumer that you may crash",
		Long:    devHelp,
		Example: devExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDev(cmd, o, summary)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.For, "for", 0, "produce for this long, check the result and end (default: until Ctrl-C)")
	f.IntVar(&o.Rate, "rate", 2000, "messages a second, copies included")
	f.Float64Var(&o.Duplicates, "duplicates", 0.3, "share of the messages that are copies")
	f.IntVar(&o.Partitions, "partitions", 4, "partitions of the topic")
	f.Float64Var(&o.Fail, "fail", 0, "share of the handler's calls that fail; a message that failed is tried again")
	f.StringVar(&o.Handler, "handler", devstack.HandlerPlain,
		"plain, or hang: one message in a thousand waits for a second")
	f.BoolVar(&o.Outbox, "outbox", false, "send each movement through an outbox to a second topic, and book it from there")
	f.DurationVar(&o.CrashEvery, "crash-every", 0, "kill the consumer this often, on average (default: never)")
	f.StringVar(&o.Kafka, "kafka", "", "address of a running Kafka, host:port (default: embedded)")
	f.StringVar(&o.Postgres, "postgres", "", "connection string of a running Postgres (default: embedded)")
	f.StringVar(&o.Data, "data", "",
		"directory of the embedded Postgres' data, kept (default: a temporary one, removed)")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0",
		"address of the page, on this machine; port 0 takes a free one, and an empty text has no page")
	f.StringVar(&summary, "summary", "text",
		"text, or json: one last line on standard output, all else on standard error")
	cmd.AddCommand(newDevConsumer(), newDevServers())
	return cmd
}

func runDev(cmd *cobra.Command, o devstack.Options, summary string) error {
	if summary != "text" && summary != "json" {
		return usage(cmd, "summary: %q is neither text nor json", summary)
	}
	if err := o.Validate(); err != nil {
		return usage(cmd, "%v", err)
	}
	if summary == "text" {
		o.Out = os.Stdout
	}
	start := time.Now()
	result, err := devstack.Run(cmd.Context(), o)
	if err != nil {
		return fmt.Errorf("dev, after %s: %w", time.Since(start).Round(time.Second), err)
	}
	fmt.Fprintf(o.Out, "%s\n", result)
	if summary == "json" {
		line, err := result.JSON()
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	if !result.OK {
		return errors.New("dev: not every movement took effect once")
	}
	return nil
}

// docs/GUIDE.md needs it.
func newDevServers() *cobra.Command {
	return &cobra.Command{
		Use:   "servers",
		Short: "An empty Postgres and an empty broker, to try things on",
		Long: `Runs an embedded Postgres and an embedded Kafka broker until Ctrl-C, and prints two lines for a shell that say where
they are: POSTGRES, a connection string, and KAFKA, an address. Both begin empty, and what they held is gone afterwards.`,
		Example: "  firstseen dev servers",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return devstack.Servers(ctx, cmd.OutOrStdout())
		},
	}
}

// newDevConsumer is the process that is there to be killed.
func newDevConsumer() *cobra.Command {
	return &cobra.Command{
		Use:    "consumer",
		Short:  "The consumer of a running `dev`, which starts it",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return devstack.Consume(ctx)
		},
	}
}
