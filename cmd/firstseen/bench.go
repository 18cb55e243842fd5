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

const benchHelp = `Measures firstseen on this machine: on a real Kafka and a Postgres with durable settings, which it starts and
stops itself, against what people would use in its place and against the limits of the two.

Contenders take turns in rounds; a ratio is the median of the rounds' ratios. A goal that is missed is shown as missed
and is no error.

Kafka needs Java 17 and Maven; the peers are built with go from their sources, testdata/peers.`

// newBench is the bench subcommand.
func newBench() *cobra.Command {
	var o bench.Options
	var json, chart string
	names, about := bench.Names()
	help := benchHelp + "\n\nSuites:\n"
	for i := range names {
		help += fmt.Sprintf("\n  %-16s %s", names[i], about[i])
	}
	cmd := &cobra.Command{
		Use:     "bench [SUITE...]",
		Short:   "Measure it against peers and limits",
		Long:    help,
		Example: "  firstseen bench --quick\n  firstseen bench accept end-to-end --json figures.json",
		RunE: func(cmd *cobra.Command, suites []string) error {
			o.Out, o.Suites = cmd.OutOrStdout(), suites
			return runBench(cmd, o, json, chart)
		},
	}
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
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.Contend(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func runBench(cmd *cobra.Command, o bench.Options, json, chart string) (err error) {
	if err := o.Check(); err != nil {
		return usage(cmd, "%v", err)
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
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if _, err = bench.Run(ctx, o); ctx.Err() != nil {
		err = errors.New("bench: interrupted")
	}
	return err
}
