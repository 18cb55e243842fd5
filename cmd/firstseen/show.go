package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// newShow shows all messages of an ID, which have one of the statuses. what they are called, and what is told of
// others, is for an ID that has none.
func newShow(i *inspected, what, told string, statuses ...operate.Status) *cobra.Command {
	var f operate.Filter
	cmd := &cobra.Command{Use: "show ID", Args: oneArg("ID")}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if f.IDs, err = parseIDs(cmd, args); err != nil {
			return err
		}
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			found, err := findByID(ctx, s, f, statuses)
			switch {
			case err != nil:
				return err
			case len(found) == 0:
				return fmt.Errorf("inbox %s: no %s has the ID %s; `firstseen explain` tells %s",
					s.Name(), what, args[0], told)
			case i.json:
				return printJSON(cmd.OutOrStdout(), i.messagesJSON(found, ""))
			}
			decode, done := i.decode()
			defer done()
			return printWhole(cmd.OutOrStdout(), found, decode)
		})
	}
	addScopeFlags(cmd, &f, i.handlerFlag())
	return cmd
}

func addScopeFlags(cmd *cobra.Command, f *operate.Filter, handler string) {
	cmd.Flags().StringVar(&f.Handler, handler, "", "`name` of the "+handler)
	cmd.Flags().StringVar(&f.Tenant, "tenant", "", "`name` of the tenant")
}

func findByID(ctx context.Context, s *operate.Inbox, f operate.Filter, statuses []operate.Status) (
	found []operate.Listed, err error) {
	for _, status := range statuses {
		more, _, err := s.Messages(ctx, operate.Listing{Status: status, Filter: f, Limit: 100, Content: true})
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(cmd, "want one argument, %s, and got %d", what, len(args))
		}
		return nil
	}
}

// since names a message's time in its status.
var since = map[operate.Status]string{operate.StatusPending: "parked", operate.StatusFailed: "parked",
	operate.StatusProcessed: "processed", operate.StatusDead: "died"}

func sinceOf(m *operate.Listed) string {
	if m.Handler == "" {
		return "added" // to the outbox
	}
	return since[m.Status]
}

func printWhole(out io.Writer, messages []operate.Listed, decode view.Decode) error {
	for n, l := range messages {
		if n > 0 {
			_, _ = fmt.Fprintln(out)
		}
		m := &l.Message
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		printFields(table, [][2]string{
			{"id", m.ID.String()}, {"raw id", quotedUnlessEmpty(m.RawID)}, {"inbox", terminal.OneLine(l.Inbox)},
			{"handler", terminal.OneLine(l.Handler)}, {"tenant", terminal.OneLine(m.Tenant)},
			{"message", place(m)}, {"status", string(l.Status)}, {"produced", view.Timestamp(m)},
			{"received", view.Clock(l.ReceivedAt)},
			{sinceOf(&l), view.Clock(l.At)}, {"due", view.Clock(l.DueAt)},
			{"attempts", fmt.Sprint(l.Attempts)}, {"reason", terminal.OneLine(l.Reason)},
			{"error", indented(terminal.Visible(l.Error))},
			{"key", terminal.Inline(m.Key)}, {"headers", fmt.Sprint(len(m.Headers))},
		})
		if err := table.Flush(); err != nil {
			return err
		}
		if decode != nil {
			decode(m)
		}
		if err := printContent(out, m); err != nil {
			return err
		}
	}
	return nil
}

// printContent prints what does not fit a line of the table.
func printContent(out io.Writer, m *dedup.Message) error {
	for _, h := range m.Headers {
		_, _ = fmt.Fprintf(out, "  %s: %s\n", terminal.OneLine(h.Key), terminal.Inline(h.Value))
	}
	text, kind := terminal.Value(m.Value)
	_, err := fmt.Fprintf(out, "value     %s\n%s", kind, text)
	if d := m.Decoded; d != nil && err == nil {
		if text, kind = terminal.Value(d.JSON); d.Err != nil {
			text, kind = "", terminal.OneLine(d.Err.Error())
		}
		_, err = fmt.Fprintf(out, "decoded   %s\n%s", kind, text)
	}
	return err
}

// printFields leaves out those without a value.
func printFields(out io.Writer, fields [][2]string) {
	for _, f := range fields {
		if f[1] != "" {
			_, _ = fmt.Fprintf(out, "%s\t%s\n", f[0], f[1])
		}
	}
}

// indented keeps the further lines of a text in its column.
func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n\t") }

func quotedUnlessEmpty(text string) string {
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}
