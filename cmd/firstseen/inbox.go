package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/operate"
)

const inboxLong = `Look at messages by what has become of them:
  pending    parked, and not tried in vain: behind another message of their key, or waiting for a call
  failed     parked, for an attempt after one that failed
  processed  done
  dead       given up: see also ` + "`firstseen dead`" + `

An --id is what the producer wrote (a UUID in any spelling, or any other text) or the UUID that list shows.` + databaseHelp

func newInbox() *cobra.Command {
	i := &inspected{}
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Look at messages by what has become of them",
		Long:  inboxLong,
		Example: `  firstseen inbox list --status failed --handler book
  firstseen inbox show order-4711`,
	}
	i.addFlags(cmd)
	return parentOf(cmd, newInboxList(i), newInboxShow(i), newInboxErrors(i))
}

type statusFlag operate.Status

func (s *statusFlag) String() string { return string(*s) }
func (s *statusFlag) Type() string   { return "status" }

func (s *statusFlag) Set(text string) error {
	if !slices.Contains(operate.Statuses, operate.Status(text)) {
		return fmt.Errorf("it is one of %s", statusNames())
	}
	*s = statusFlag(text)
	return nil
}

func statusNames() string {
	return strings.Join(mapped(operate.Statuses, func(s operate.Status) string { return string(s) }), ", ")
}

func newInboxList(i *inspected) *cobra.Command {
	status := statusFlag(operate.StatusFailed)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages of one status, newest first",
		Long: `List messages of one status, those received last first, or dead ones by when they died. With --json one object: messages,
each with its content, and next where there are more.

Processed messages are read back from the newest, or from --until, to --since, until there are enough: no index leads to
them by topic, handler or key. Narrow the time where that takes long.

Exit codes: 0 listed, even if there are none, 1 it failed, 2 wrong usage or config.`,
		Example: `  firstseen inbox list --status failed
  firstseen inbox list --status processed --topic orders --key 4711 --since 24h`,
	}
	cmd.Flags().Var(&status, "status", "which messages: "+statusNames())
	addList(cmd, i, true, lister[operate.Listed]{what: "messages of that status",
		columns: []string{"RECEIVED (UTC)", "STATUS", strings.ToUpper(i.handlerFlag()), "MESSAGE", "ID", "ATTEMPTS",
			"DUE (UTC)", "REASON", "ERROR"},
		find: func(ctx context.Context, s *operate.Inbox, f operate.Filter, after operate.Cursor,
			limit int) ([]operate.Listed, operate.Cursor, error) {
			if operate.Status(status) == operate.StatusProcessed && f.Reason != "" {
				return nil, "", usage(cmd, "--reason: processed messages have none")
			}
			return s.Messages(ctx, operate.Listing{Status: operate.Status(status), Filter: f,
				After: after, Limit: limit, Content: i.json})
		},
		row: func(m *operate.Listed) []string {
			due := ""
			if !m.DueAt.IsZero() {
				due = m.DueAt.UTC().Format(time.DateTime)
			}
			return []string{m.ReceivedAt.UTC().Format(time.DateTime), string(m.Status),
				shownHandler(m.Handler, &m.Message), place(&m.Message), shownID(&m.Message), strconv.Itoa(m.Attempts),
				due, terminal.Brief(m.Reason, 40), terminal.Brief(m.Error, 70)}
		},
		json: i.messagesJSON})
	return cmd
}

func newInboxShow(i *inspected) *cobra.Command {
	cmd := newShow(i, "message that is kept", "what is known of it", operate.Statuses...)
	cmd.Short = "Show a message whole, whatever has become of it"
	cmd.Long = `Show everything of the messages with that ID; there may be one for each handler. Null is shown as null, empty as "", text
in quotes, and bytes that are no text as \x and hex digits; a value that is no text is dumped. With --json keys,
header values and the value are texts, or base64 where they are not UTF-8.

Exit codes: 0 shown, 1 it failed or there is none, 2 wrong usage or config.`
	cmd.Example = `  firstseen inbox show order-4711
  firstseen inbox show order-4711 --json | jq -r '.messages[0].content.value | .base64 // (.text | @base64)' | base64 -d`
	return cmd
}

func newInboxErrors(i *inspected) *cobra.Command {
	var handler string
	cmd := &cobra.Command{
		Use:   "errors",
		Short: "Count what waits, by error",
		Long: `Count lanes, the queues of keys, by handler and by what the message has failed with that each waits for, the most first; and say
when the first of them is tried next. Errors that differ in numbers only are one, with # for them. Of each handler the
10,000 lanes are looked at that are due first.

Exit codes: 0 counted, even if there are none, 1 it failed, 2 wrong usage or config.`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			groups, more, err := s.LaneGroups(ctx, handler)
			if err != nil {
				return err
			}
			return i.reportErrors(cmd, s.Name(), "lanes", groups, more)
		})
	}
	cmd.Flags().StringVar(&handler, i.handlerFlag(), "", "`name` of the "+i.handlerFlag())
	return cmd
}

// reportErrors prints groups by their errors.
func (i *inspected) reportErrors(cmd *cobra.Command, inbox, what string, groups []operate.ErrorGroup, more bool) error {
	out := cmd.OutOrStdout()
	if i.json {
		return printJSON(out, view.ErrorGroupsOf(groups, more, "", nil))
	}
	l := lister[operate.ErrorGroup]{what: what, columns: []string{"COUNT", strings.ToUpper(i.handlerFlag()), "REASON",
		"OLDEST (UTC)", "NEXT TRY (UTC)", "EXAMPLE", "ERROR"}, row: groupRow}
	err := l.print(cmd, inbox, groups, "")
	if err == nil && more {
		_, err = fmt.Fprintln(out, "there are more than were looked at")
	}
	return err
}

func groupRow(g *operate.ErrorGroup) []string {
	next := ""
	if !g.NextAt.IsZero() {
		next = g.NextAt.UTC().Format(time.DateTime)
	}
	return []string{terminal.Grouped(int64(g.Count)), terminal.Brief(g.Handler, 40), terminal.Brief(g.Reason, 40),
		g.OldestAt.UTC().Format(time.DateTime), next, g.Example.String(), terminal.Brief(g.Error, 70)}
}
