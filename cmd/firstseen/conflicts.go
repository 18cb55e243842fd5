package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

const conflictsLong = `Look at conflicts: messages that came under an ID that had been seen with another content. The first one won; the copy
was not handled, and is kept here. A producer that uses an ID twice, or changes a message on a resend, shows by it.

Conflicts are seen for topics with a fingerprint only.` + databaseHelp

func newConflicts() *cobra.Command {
	i := &inspected{}
	cmd := &cobra.Command{
		Use:   "conflicts",
		Short: "Look at messages that came under a known ID with another content",
		Long:  conflictsLong,
		Example: `  firstseen conflicts list --topic orders --since 24h
  firstseen conflicts show order-4711`,
	}
	i.addFlags(cmd)
	return parentOf(cmd, newConflictsList(i), newConflictsShow(i))
}

func newConflictsList(i *inspected) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List conflicts, newest first",
		Long: `List conflicts, the last seen first. With --json one object: conflicts, and next where there are more.

Exit codes: 0 listed, even if there are none, 1 it failed, 2 wrong usage or config.`,
		Example: "  firstseen conflicts list --topic orders --since 24h",
	}
	addList(cmd, i, false, lister[operate.ConflictCopy]{what: "conflicts",
		columns: []string{"SEEN (UTC)", "HANDLER", "COPY", "ID", "SIZE"},
		find: func(ctx context.Context, s *operate.Inbox, f operate.Filter, after operate.Cursor,
			limit int) ([]operate.ConflictCopy, operate.Cursor, error) {
			return s.Conflicts(ctx, f, after, limit)
		},
		row: func(c *operate.ConflictCopy) []string {
			return []string{c.SeenAt.UTC().Format(time.DateTime), shownHandler(c.Handler, &c.Message),
				place(&c.Message), c.Message.ID.String(), strconv.Itoa(len(c.Message.Value))}
		},
		json: func(found []operate.ConflictCopy, next operate.Cursor) any {
			return view.ConflictsOf(found, next, view.Look{Limit: view.Whole})
		}})
	return cmd
}

func newConflictsShow(i *inspected) *cobra.Command {
	var f operate.Filter
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show both contents of an ID side by side",
		Long: `Show the message that won and each copy with another content, side by side, with where and when each came. JSON is
laid out alike on both sides, with sorted keys, so that only what differs does. Lines are marked: | differs, < is in
the first only, > is in the copy only.

Exit codes: 0 shown, 1 it failed or there is none, 2 wrong usage or config.`,
		Example: "  firstseen conflicts show order-4711",
		Args:    oneArg("ID"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if f.IDs, err = parseIDs(cmd, args); err != nil {
			return err
		}
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			copies, _, err := s.Conflicts(ctx, f, "", 100)
			switch {
			case err != nil:
				return err
			case len(copies) == 0:
				return fmt.Errorf("inbox %s: there is no conflict under the ID %s", s.Name(), args[0])
			}
			return i.showConflicts(ctx, cmd.OutOrStdout(), s, copies)
		})
	}
	addScopeFlags(cmd, &f, i.handlerFlag())
	return cmd
}

func (i *inspected) showConflicts(ctx context.Context, out io.Writer, s *operate.Inbox,
	copies []operate.ConflictCopy) error {
	var pairs view.ConflictPairs
	for n, c := range copies {
		first, err := s.Winner(ctx, c)
		if err != nil {
			return err
		}
		if i.json {
			pairs.Conflicts = append(pairs.Conflicts, view.ConflictPairOf(&c, first, view.Look{Limit: view.Whole}))
			continue
		}
		if n > 0 {
			_, _ = fmt.Fprintln(out)
		}
		if err := printConflict(out, c, first); err != nil {
			return err
		}
	}
	if i.json {
		return printJSON(out, pairs)
	}
	return nil
}

func printConflict(out io.Writer, c operate.ConflictCopy, first *operate.Stored) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printFields(table, [][2]string{{"id", c.Message.ID.String()}, {"inbox", terminal.OneLine(c.Inbox)},
		{"handler", terminal.OneLine(c.Handler)}, {"tenant", terminal.OneLine(c.Message.Tenant)}})
	won := "kept no more: it was discarded, or its day was dropped from the inbox"
	if first != nil {
		won = fmt.Sprintf("%s, received %s, now %s", place(&first.Message), view.Clock(first.ReceivedAt),
			stateName(first.State))
		printFields(table, [][2]string{{"raw id", quotedUnlessEmpty(first.Message.RawID)}})
	}
	printFields(table, [][2]string{{"first", won},
		{"copy", fmt.Sprintf("%s, received %s, not handled", place(&c.Message), view.Clock(c.SeenAt))}})
	if err := table.Flush(); err != nil {
		return err
	}
	if first == nil {
		text, kind := terminal.Value(c.Message.Value)
		_, err := fmt.Fprintf(out, "copy's value  %s\n%s", kind, text)
		return err
	}
	return terminal.Sides(out, first.Message.Value, c.Message.Value)
}

func stateName(s dedup.State) string {
	switch s {
	case dedup.Parked:
		return "parked"
	case dedup.Dead:
		return "dead"
	}
	return "processed"
}
