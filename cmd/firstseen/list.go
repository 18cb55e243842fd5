package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/dedup/operate"
)

// lister is what a list subcommand lists, in pages, newest first.
type lister[T any] struct {
	what    string
	columns []string
	find    func(context.Context, *operate.Inbox, operate.Filter, operate.Cursor, int) ([]T, operate.Cursor, error)
	row     func(*T) []string
	json    func([]T, operate.Cursor) any
}

// addList makes a command list things, by a filter and in pages.
func addList[T any](cmd *cobra.Command, i *inspected, withReason bool, l lister[T]) {
	var f filterFlags
	var p pageFlags
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, _, err := f.read(cmd)
		if err != nil {
			return err
		}
		if err := p.check(cmd); err != nil {
			return err
		}
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			found, next, err := l.find(ctx, s, filter, operate.Cursor(p.after), p.limit)
			if err != nil {
				return err
			}
			if i.json {
				return printJSON(cmd.OutOrStdout(), l.json(found, next))
			}
			return l.print(cmd, s.Name(), found, next)
		})
	}
	f.addFlags(cmd, withReason)
	p.addFlags(cmd)
}

func (l lister[T]) print(cmd *cobra.Command, inbox string, found []T, next operate.Cursor) error {
	out := cmd.OutOrStdout()
	if len(found) == 0 {
		_, err := fmt.Fprintf(out, "inbox %s: no %s match\n", terminal.OneLine(inbox), l.what)
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, strings.Join(l.columns, "\t"))
	for n := range found {
		_, _ = fmt.Fprintln(table, strings.Join(l.row(&found[n]), "\t"))
	}
	if err := table.Flush(); err != nil || next == "" {
		return err
	}
	_, err := fmt.Fprintf(out, "there are more: --after %s\n", next)
	return err
}

// pageFlags say which part of a list to show.
type pageFlags struct {
	limit int
	after string
}

func (p *pageFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&p.limit, "limit", 50, "how many to show at most")
	flags.StringVar(&p.after, "after", "", "go on behind this `cursor`, which the list before gave")
}

const maxLimit = 10_000

func (p *pageFlags) check(cmd *cobra.Command) error {
	if p.limit < 1 || p.limit > maxLimit {
		return usage(cmd, "--limit %d: from 1 to %d", p.limit, maxLimit)
	}
	return nil
}
