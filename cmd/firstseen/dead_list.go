package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/dedup"
)

func newDeadList(i *inspected) *cobra.Command {
	var f filterFlags
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest first",
		Long: `List dead letters, those that died last first. With --json one object: dead_letters, and next where there are more.

Exit codes: 0 listed, even if there are none, 1 it failed, 2 wrong usage or config.`,
		Example: `  firstseen dead list --handler book --since 2h
  firstseen dead list --json --limit 1000 | jq -r '.dead_letters[].error' | sort | uniq -c`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, _, err := f.read(cmd)
		if err != nil {
			return err
		}
		if err := p.check(cmd); err != nil {
			return err
		}
		return i.withStore(cmd, func(ctx context.Context, s *dedup.Store) error {
			letters, next, err := s.DeadLetters(ctx, filter, dedup.Cursor(p.after), p.limit)
			if err != nil {
				return err
			}
			if i.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{"dead_letters": mapped(letters, deadJSON), "next": orNil(string(next))})
			}
			return printDeadLetters(cmd.OutOrStdout(), s.Inbox(), letters, next)
		})
	}
	f.addFlags(cmd, true)
	p.addFlags(cmd)
	return cmd
}

func printDeadLetters(out io.Writer, inbox string, letters []dedup.DeadLetter, next dedup.Cursor) error {
	if len(letters) == 0 {
		_, err := fmt.Fprintf(out, "inbox %s: no dead letters match\n", inbox)
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "DIED (UTC)\tHANDLER\tMESSAGE\tID\tATTEMPTS\tREASON\tERROR")
	for _, d := range letters {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", d.DiedAt.UTC().Format(time.DateTime), shownHandler(d.Handler, &d.Message), place(&d.Message),
			shownID(&d.Message), d.Attempts, d.Reason, brief(d.Error, 70))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return printNext(out, next)
}

// shownHandler is a handler and, where there is one, the tenant, short enough for a table.
func shownHandler(handler string, m *dedup.Message) string {
	if m.Tenant != "" {
		handler += " (" + m.Tenant + ")"
	}
	return brief(handler, 40)
}

func printNext(out io.Writer, next dedup.Cursor) error {
	if next == "" {
		return nil
	}
	_, err := fmt.Fprintf(out, "there are more: --after %s\n", next)
	return err
}

func place(m *dedup.Message) string { return fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset) }

// shownID is an ID that --id takes: the producer's text where it is short and plain.
func shownID(m *dedup.Message) string {
	plain := func(r rune) bool { return r > ' ' && r < unicode.MaxASCII && r != '\\' && r != '\'' && r != '"' }
	if m.RawID == "" || len(m.RawID) > 40 || strings.ContainsFunc(m.RawID, func(r rune) bool { return !plain(r) }) {
		return m.ID.String()
	}
	return m.RawID
}

// brief is the beginning of a text, on one line.
func brief(text string, limit int) string {
	text = strings.Join(strings.Fields(visible(text)), " ")
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}
