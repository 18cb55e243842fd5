package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/cmd/internal/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

func newDeadShow(i *inspected) *cobra.Command {
	var handler, tenant string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a dead letter whole",
		Long: `Show everything of the dead letters with that ID; there may be one for each handler. Null is shown as null, empty as
"", text in quotes, and bytes that are no text as \x and hex digits; a value that is no text is dumped. With --json keys,
header values and the value are texts, or base64 where they are not UTF-8.

Exit codes: 0 shown, 1 it failed or there is none, 2 wrong usage or config.`,
		Example: `  firstseen dead show order-4711
  firstseen dead show order-4711 --json | jq -r '.messages[0].content.value | .base64 // (.text | @base64)' | base64 -d`,
		Args: oneArg("ID"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(cmd, args)
		if err != nil {
			return err
		}
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			letters, _, err := s.Messages(ctx, operate.Listing{Status: operate.StatusDead, Limit: 100, Content: true,
				Filter: operate.Filter{IDs: ids, Handler: handler, Tenant: tenant}})
			switch {
			case err != nil:
				return err
			case len(letters) == 0:
				return fmt.Errorf("inbox %s: no dead letter has the ID %s; `firstseen explain` tells what became of it", s.Name(),
					args[0])
			case i.json:
				return printJSON(cmd.OutOrStdout(), messagesJSON(letters, ""))
			}
			return printWhole(cmd.OutOrStdout(), letters)
		})
	}
	cmd.Flags().StringVar(&handler, "handler", "", "`name` of the handler")
	cmd.Flags().StringVar(&tenant, "tenant", "", "`name` of the tenant")
	return cmd
}

func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(cmd, "want one argument, %s, and got %d", what, len(args))
		}
		return nil
	}
}

// since is what a message's time in its status is called.
var since = map[operate.Status]string{operate.StatusPending: "parked", operate.StatusFailed: "parked",
	operate.StatusProcessed: "processed", operate.StatusDead: "died"}

func printWhole(out io.Writer, messages []operate.Listed) error {
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
			{since[l.Status], view.Clock(l.At)}, {"due", view.Clock(l.DueAt)},
			{"attempts", fmt.Sprint(l.Attempts)}, {"reason", terminal.OneLine(l.Reason)}, {"error", indented(terminal.Visible(l.Error))},
			{"key", terminal.Inline(m.Key)}, {"headers", fmt.Sprint(len(m.Headers))},
		})
		if err := table.Flush(); err != nil {
			return err
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
func printJSON(out io.Writer, v any) error {
	text, err := httpjson.Marshal(v, "  ")
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

func mapped[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

func quotedUnlessEmpty(text string) string {
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}
