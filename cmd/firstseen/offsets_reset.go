package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

const offsetsResetLong = `Have a group that has no members go on somewhere else in a topic. Stop its processes first: while one is there this is
refused, with who it is.

--to is one of

  earliest             the first message that Kafka has left
  latest               the end: nothing that is there now is read
  4711                 an offset, in each partition
  2h-ago               the first message of the last two hours
  2026-03-01T04:05:06Z the first message at or after a time; UTC where no zone is given

Going back is safe: what was seen is a duplicate and has no effect again. Going forward SKIPS messages: no handler ever
sees those between, and nothing remembers them. How many it is, is printed, and it asks: give --yes, or type the number at a
terminal.

Both places are moved: first the positions in Postgres, in one transaction with a note in the table audit, then the offsets
in Kafka. The group goes on at the lower of the two, so that nothing is skipped where this was killed in between; give the
command again then. (Where the config has on_postgres_behind: committed, it goes on at the committed offset.) A process that
hangs and comes back later finds itself fenced.

With --json one object: group, topic, dry_run, partitions with next_offset, committed_offset, from, to, skipped and again.` + groupHelp + `
The database's role firstseen_consumer may not do this; give a login with the role firstseen_operator by --dsn.

Exit codes: 0 done, or printed with --dry-run, 1 it failed or the group has members, 2 wrong usage or config, or not confirmed.`

// reset is the command line of offsets reset.
type reset struct {
	*clusterOf
	to         string
	partitions []int32
	dry        bool
	confirm    confirmation
	by         operate.By
}

func newOffsetsReset(c *clusterOf) *cobra.Command {
	r := &reset{clusterOf: c}
	cmd := &cobra.Command{
		Use:   "reset TOPIC",
		Short: "Have a group without members go on somewhere else",
		Long:  offsetsResetLong,
		Example: `  firstseen offsets reset orders --to 2h-ago --dry-run
  firstseen offsets reset orders --to earliest --why "restored the shop's tables, incident 482"
  firstseen offsets reset orders --to 4711 --partitions 3 --why "poisoned range, agreed with sales" --yes`,
		Args: oneTopic,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&r.to, "to", "", "`place` to go on at; required")
	flags.Int32SliceVar(&r.partitions, "partitions", nil,
		"`numbers` of the partitions, separated by commas (default all)")
	flags.BoolVar(&r.dry, "dry-run", false, "print what it would mean, and change nothing")
	r.confirm.addFlag(cmd)
	flags.StringVar(&r.by.Why, "why", "", "`text` for those who come after; required")
	flags.StringVar(&r.by.Actor, "actor", actor(), "`name` of who does it")
	return cmd
}

func oneTopic(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage(cmd, "name one topic")
	}
	return nil
}

func (r *reset) run(cmd *cobra.Command, topic string) error {
	to, err := replay.ParsePlace(r.to, time.Now())
	switch {
	case r.to == "":
		return usage(cmd, "--to is required: earliest, latest, an offset, a duration like 2h-ago, or a time")
	case err != nil:
		return usage(cmd, "--to: %v", err)
	case r.by.Why == "" && !r.dry:
		return usage(cmd, "--why is required: it is kept in the audit")
	}
	return r.with(cmd, func(ctx context.Context, cfg config.Config, cluster *cluster.Cluster,
		store *dedup.Store) error {
		plan, err := cluster.PlanReset(ctx, store, cfg.Group, topic, to, r.partitions)
		if err != nil {
			return err
		}
		out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
		if !r.json {
			notes = out
		}
		printReset(notes, plan, r.json)
		if n := plan.Skipped(); n > 0 && !r.dry {
			if err := r.confirm.ask(cmd, n, terminal.Grouped(n)+" offsets will be skipped for good"); err != nil {
				return err
			}
		}
		if !r.dry {
			err = cluster.Reset(ctx, store, plan, r.by)
		}
		switch {
		case err != nil:
			return err
		case r.json:
			return printJSON(out, view.ResetOf(plan, r.dry))
		case r.dry:
			_, err = fmt.Fprintln(out, "nothing was changed")
		default:
			_, err = fmt.Fprintln(out, "done: the group goes on there when it is started")
		}
		return err
	})
}

// printReset says what a reset means; quiet: only where it skips messages.
func printReset(out io.Writer, plan *cluster.Reset, quiet bool) {
	if !quiet {
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "PARTITION\tPOSITION\tCOMMITTED\tFROM\tTO\tMEANS")
		for _, p := range plan.Partitions {
			_, _ = fmt.Fprintf(table, "%s/%d\t%s\t%s\t%s\t%d\t%s\n", plan.Topic, p.Partition, offsetText(p.Position),
				offsetText(p.Committed),
				offsetText(p.From), p.To, meaning(&p))
		}
		_ = table.Flush()
	}
	if n := plan.Skipped(); n > 0 {
		_, _ = fmt.Fprintf(out, "\n%s SKIPPED: no handler will ever see them\n", terminal.Grouped(n)+" offsets are")
	}
}

func meaning(p *cluster.ResetPartition) string {
	switch {
	case p.From < 0:
		return "begins there"
	case p.Skipped > 0:
		return terminal.Grouped(p.Skipped) + " SKIPPED"
	case p.Again > 0:
		return terminal.Grouped(p.Again) + " read again"
	}
	return "no message skipped or read again"
}
