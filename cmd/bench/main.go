// Command bench measures firstseen on this machine: see its --help, and docs/PERFORMANCE.md for what it has shown. It
// is a command of its own so that the program that users run holds no Java launcher and no test kits.
//
//	go run ./cmd/bench [SUITE...]     measure all suites, or some
//	go run ./cmd/bench contender      what it runs itself: firstseen as one of those that take turns
//
// Errors are one line on standard error; exit codes are 0 for a clean end, 1 for a failure, 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/bench"
)

const help = `Measures firstseen on this machine: on a real Kafka and a Postgres with durable settings, which it starts and
stops itself, against what people would use in its place and against the limits of the two.

Contenders take turns in rounds; a ratio is the median of the rounds' ratios. A goal that is missed is shown as missed
and is no error.

Kafka needs Java 17 and Maven; the peers are built with go from their sources, testdata/peers.

Suites:
`

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := newBench()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	var wrong *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		_, _ = fmt.Fprintf(stderr, "bench: %v; see bench --help\n", err)
		return exitUsage
	}
	_, _ = fmt.Fprintln(stderr, "bench:", err)
	return exitFailure
}

type usageError struct{ error }

func newBench() *cobra.Command {
	var o bench.Options
	var json, chart string
	names, about := bench.Names()
	long := help
	for i := range names {
		long += fmt.Sprintf("\n  %-16s %s", names[i], about[i])
	}
	cmd := &cobra.Command{
		Use:     "bench [SUITE...]",
		Long:    long,
		Example: "  go run ./cmd/bench --quick\n  go run ./cmd/bench accept end-to-end --json figures.json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, suites []string) error {
			o.Out, o.Suites = cmd.OutOrStdout(), suites
			return run(cmd.Context(), o, json, chart)
		},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	f := cmd.Flags()
	f.BoolVar(&o.Quick, "quick", false, "small rounds, in under three minutes")
	f.BoolVar(&o.Large, "large", false, "growth up to 50 million IDs, which takes hours")
	f.StringVar(&o.Peers, "peers", "testdata/peers", "directory of the peers' module")
	f.StringVar(&json, "json", "", "file for the figures, one JSON object a line")
	f.StringVar(&chart, "chart", "", "file for a chart of the ratios (SVG)")
	cmd.AddCommand(newContender())
	return cmd
}

func newContender() *cobra.Command {
	return &cobra.Command{
		Use:    "contender",
		Short:  "One contender of a bench; bench runs it",
		Hidden: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("unexpected argument %q", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.Contend(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func run(ctx context.Context, o bench.Options, json, chart string) (err error) {
	if err := o.Check(); err != nil {
		return &usageError{err}
	}
	for path, to := range map[string]*io.Writer{json: &o.JSON, chart: &o.Chart} {
		if path == "" {
			continue
		}
		f, e := os.Create(path)
		if e != nil {
			return e
		}
		defer func() {
			if e := f.Close(); err == nil {
				err = e
			}
		}()
		*to = f
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if _, err = bench.Run(ctx, o); ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return err
}
