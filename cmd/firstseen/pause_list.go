package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/dedup"
)

func newPauseList(i *inspected) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is paused",
		Long: `List what is paused in the inbox: since when, by whom and why.

Exit codes: 0 listed, even if there is nothing, 1 it failed, 2 wrong usage or config.`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return i.withStore(cmd, func(ctx context.Context, s *dedup.Store) error {
			list, err := s.Pauses(ctx)
			switch {
			case err != nil:
				return err
			case i.json:
				return printJSON(cmd.OutOrStdout(), map[string]any{"inbox": s.Inbox(), "pauses": mapped(list, pauseJSON)})
			}
			return printPauses(cmd.OutOrStdout(), s.Inbox(), list)
		})
	}
	return cmd
}

func pauseJSON(p dedup.Pause) map[string]any {
	return map[string]any{"kind": p.Kind, "name": p.Name(), "at": timeJSON(p.At), "actor": p.Actor, "why": p.Why}
}

func printPauses(out io.Writer, inbox string, list []dedup.Pause) error {
	if len(list) == 0 {
		_, err := fmt.Fprintf(out, "inbox %s: nothing is paused\n", oneLine(inbox))
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "SINCE (UTC)\tKIND\tNAME\tBY\tWHY")
	for _, p := range list {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.At.UTC().Format(time.DateTime), p.Kind, brief(p.Name(), 60), brief(p.Actor, 40), brief(p.Why, 70))
	}
	return table.Flush()
}
