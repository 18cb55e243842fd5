package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/cmd/internal/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

func newDeadList(i *inspected) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest first",
		Long: `List dead letters, those that died last first. With --json one object: messages, each with its content, and next
where there are more.

Exit codes: 0 listed, even if there are none, 1 it failed, 2 wrong usage or config.`,
		Example: `  firstseen dead list --handler book --since 2h
  firstseen dead list --json --limit 1000 | jq -r '.messages[].error' | sort | uniq -c`,
	}
	addList(cmd, i, true, lister[operate.Listed]{what: "dead letters",
		columns: []string{"DIED (UTC)", "HANDLER", "MESSAGE", "ID", "ATTEMPTS", "REASON", "ERROR"},
		find: func(ctx context.Context, s *operate.Inbox, f operate.Filter, after operate.Cursor,
			limit int) ([]operate.Listed, operate.Cursor, error) {
			return s.Messages(ctx, operate.Listing{Status: operate.StatusDead, Filter: f, After: after, Limit: limit,
				Content: i.json})
		},
		row: func(d *operate.Listed) []string {
			return []string{d.At.UTC().Format(time.DateTime), shownHandler(d.Handler, &d.Message), place(&d.Message),
				shownID(&d.Message),
				strconv.Itoa(d.Attempts), terminal.Brief(d.Reason, 40), terminal.Brief(d.Error, 70)}
		},
		json: messagesJSON})
	return cmd
}

// messagesJSON is a page of messages, whole.
func messagesJSON(found []operate.Listed, next operate.Cursor) any {
	return view.MessagesOf(found, next, view.Whole)
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
