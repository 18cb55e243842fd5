package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/argtext"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
)

// lister lists things in pages, newest first.
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
	f.addFlags(cmd, withReason, i.handlerFlag())
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

type filterFlags struct {
	filter       operate.Filter
	key          string
	since, until string
	ids          []string
}

func (f *filterFlags) addFlags(cmd *cobra.Command, withReason bool, handler string) {
	flags := cmd.Flags()
	flags.StringVar(&f.filter.Topic, "topic", "", "`name` of the topic")
	addScopeFlags(cmd, &f.filter, handler)
	if withReason {
		flags.StringVar(&f.filter.Reason, "reason", "", "`code` of the failure, as list shows it")
	}
	flags.StringVar(&f.key, "key", "", `message key, as text, or \x and hex digits`)
	flags.StringVar(&f.since, "since", "",
		"not before this `time`: 2h (before now), 2026-03-01, or 2026-03-01T04:05:06Z")
	flags.StringVar(&f.until, "until", "", "before this `time`")
	flags.StringArrayVar(&f.ids, "id", nil, "message `ID`; may be given again")
}

// read gives the filter, and whether it narrows anything.
func (f *filterFlags) read(cmd *cobra.Command) (filter operate.Filter, narrow bool, err error) {
	for _, name := range []string{"topic", "handler", "destination", "tenant", "reason", "key", "since", "until", "id"} {
		narrow = narrow || cmd.Flags().Changed(name)
	}
	filter = f.filter
	if cmd.Flags().Changed("key") {
		if filter.Key, err = argtext.Key(f.key); err != nil {
			return filter, narrow, usage(cmd, "--key: %v", err)
		}
	}
	if filter.From, err = parseTime(f.since, time.Now()); err != nil {
		return filter, narrow, usage(cmd, "--since: %v", err)
	}
	if filter.To, err = parseTime(f.until, time.Now()); err != nil {
		return filter, narrow, usage(cmd, "--until: %v", err)
	}
	filter.IDs, err = parseIDs(cmd, f.ids)
	return filter, narrow, err
}

func parseIDs(cmd *cobra.Command, given []string) (ids []uuid.UUID, err error) {
	for _, text := range given {
		found, err := identity.ParseIDs(text)
		if err != nil {
			return nil, usage(cmd, "%v", err)
		}
		ids = append(ids, found...)
	}
	return ids, nil
}

// parseTime reads a time, or a duration before now. Times without a zone are UTC, as they are printed.
func parseTime(text string, now time.Time) (time.Time, error) { return argtext.Time(text, now) }

// messagesJSON decodes values where the config has a registry.
func (i *inspected) messagesJSON(found []operate.Listed, next operate.Cursor) any {
	decode, done := i.decode()
	defer done()
	return view.MessagesOf(found, next, view.Look{Limit: view.Whole, Decode: decode})
}

// decode decodes values as the config says, which need not be without faults for that.
func (i *inspected) decode() (decode view.Decode, done func()) {
	c, _ := config.Load(i.file, i.environ())
	formats, registry, err := c.Formats()
	if err != nil || registry == nil {
		return nil, func() {}
	}
	return view.By(context.Background(), formats), registry.Close
}

// shownHandler is a handler and, where there is one, the tenant, short enough for a table.
func shownHandler(handler string, m *dedup.Message) string {
	if m.Tenant != "" {
		handler += " (" + m.Tenant + ")"
	}
	return terminal.Brief(handler, 40)
}

func place(m *dedup.Message) string {
	return fmt.Sprintf("%s/%d@%d", terminal.OneLine(m.Topic), m.Partition, m.Offset)
}

// shownID is an ID that --id takes: the producer's text where it is short and plain.
func shownID(m *dedup.Message) string {
	plain := func(r rune) bool { return r > ' ' && r < unicode.MaxASCII && r != '\\' && r != '\'' && r != '"' }
	if m.RawID == "" || len(m.RawID) > 40 || strings.ContainsFunc(m.RawID, func(r rune) bool { return !plain(r) }) {
		return m.ID.String()
	}
	return m.RawID
}

func mapped[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}
