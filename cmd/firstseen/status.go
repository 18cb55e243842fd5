package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
)

const statusLong = `Say what Postgres knows of the consumers: where each stands in its partitions, who owns them and when they moved last; what
waits and what was given up, by handler; how it stands with what is sent, by destination; what is paused; and what the running
processes wait for, as they told last. How far Kafka's ends are tells ` + "`firstseen offsets show`" + `, and
what a running process is at tell its /healthz and /api/v1/status.

Positions are those of all consumers of the schema. Destinations are those of the config, where there is one; SENT counts what
all relays have sent since the first, discarded messages too. Of each kind 100001 messages are counted for a handler at most.` + databaseHelp + overShards + `

Exit codes: 0 told, 1 it failed, 2 wrong usage or config.`

func newStatus() *cobra.Command {
	i := &inspected{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say where the consumers stand, what waits, and what is paused",
		Long:  statusLong,
		Example: `  firstseen status
  firstseen status --json | jq '.backlog[] | select(.dead > 0)'`,
		Args: noArgs,
	}
	status := func(cmd *cobra.Command) error {
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			found, err := readStatus(ctx, s, i.config().Outbox.Destinations)
			switch {
			case err != nil:
				return err
			case i.json:
				return printJSON(cmd.OutOrStdout(),
					view.InboxStatusOf(s.Name(), found.positions, found.backlog, found.pauses, found.holds, found.outbox))
			}
			return found.print(cmd.OutOrStdout(), s.Name(), time.Now())
		})
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return i.overShards(cmd, i.json, func() error { return status(cmd) })
	}
	i.addFlags(cmd)
	return cmd
}

type storedStatus struct {
	positions []operate.Position
	backlog   []operate.Backlog
	pauses    []dedup.Pause
	holds     []operate.ToldHolds
	outbox    view.Outbox
}

// readStatus reads what there is of an inbox, and of the outbox by the config's destinations.
func readStatus(ctx context.Context, s *operate.Inbox, destinations []config.Destination) (found storedStatus,
	err error) {
	if found.positions, err = s.AllPositions(ctx, operate.MaxPositions); err != nil {
		return found, err
	}
	if found.backlog, err = s.Backlog(ctx); err != nil {
		return found, err
	}
	if found.holds, err = s.Holds(ctx); err != nil {
		return found, err
	}
	topics, err := s.OutboxTopics(ctx)
	if err != nil {
		return found, err
	}
	var held []holds.Hold
	for _, told := range found.holds {
		if !told.Stale {
			held = append(held, told.Holds...)
		}
	}
	found.outbox = view.OutboxOf(config.Destined(destinations), topics, time.Now(), held)
	found.pauses, err = s.Pauses(ctx)
	return found, err
}

func (f *storedStatus) print(out io.Writer, inbox string, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "CONSUMER\tPARTITION\tNEXT\tMOVED\tACQUIRED\tOWNER")
	for _, p := range f.positions {
		next := "-"
		if p.Next >= 0 {
			next = strconv.FormatInt(p.Next, 10)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s/%d\t%s\t%s\t%s\t%s\n", terminal.OneLine(p.Consumer),
			terminal.OneLine(p.Topic), p.Partition, next, ago(p.MovedAt, now), ago(p.AcquiredAt, now),
			terminal.Brief(p.Owner, 60))
	}
	_, _ = fmt.Fprintf(table, "\nHANDLER\tPENDING\tFAILED\tDEAD\tOLDEST\n")
	for _, b := range f.backlog {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", terminal.Brief(b.Handler, 40), capped(b.Pending, b.Capped),
			capped(b.Failed, b.Capped), capped(b.Dead, b.Capped), ago(b.OldestAt, now))
	}
	f.printOutbox(table, now)
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\ninbox %s: %s\n", terminal.OneLine(inbox), pausedText(len(f.pauses)))
	for _, p := range f.pauses {
		_, err = fmt.Fprintf(out, "  %s, %s by %s: %s\n", terminal.OneLine(p.String()), ago(p.At, now),
			terminal.OneLine(p.Actor), terminal.Brief(p.Why, 200))
	}
	return cmp.Or(err, f.printHolds(out, now))
}

// printOutbox says how it stands with what is sent, where anything is.
func (f *storedStatus) printOutbox(table io.Writer, now time.Time) {
	if len(f.outbox.Destinations) == 0 {
		return
	}
	_, _ = fmt.Fprintf(table, "\nDESTINATION\tPENDING\tFAILED\tDEAD\tSENT\tOLDEST\tHELD\n")
	for _, d := range f.outbox.Destinations {
		name, oldest, held := "none, of topic "+d.Topics[0], "-", ""
		if d.Destination != nil {
			name = *d.Destination
		}
		if d.OldestAt != nil {
			oldest = ago(*d.OldestAt, now)
		}
		if d.Held != nil {
			held = *d.Held
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", terminal.Brief(name, 60), capped(d.Pending, d.Capped),
			capped(d.Failed, d.Capped), capped(d.Dead, d.Capped), d.Sent, oldest, held)
	}
}

// printHolds says what waits in the consumers' processes, and what to do about it.
func (f *storedStatus) printHolds(out io.Writer, now time.Time) (err error) {
	for _, told := range f.holds {
		when := "as of " + ago(told.ToldAt, now)
		if told.Stale {
			when += ", and it is gone since, or can't reach Postgres"
		}
		_, err = fmt.Fprintf(out, "\nwaiting in %s, %s (%s):\n", terminal.OneLine(told.Consumer),
			terminal.Brief(told.Owner, 60), when)
		for i := range told.Holds {
			h := &told.Holds[i]
			e := h.Entry()
			_, err = fmt.Fprintf(out, "  %s, since %s: %s (%s): %s\n    -> %s\n",
				terminal.OneLine(h.String()), ago(h.Since, now), e.Means, h.Code, terminal.Brief(h.Reason, 300), e.Do)
		}
	}
	return err
}

func pausedText(n int) string {
	if n == 0 {
		return "nothing is paused"
	}
	return "paused:"
}

// capped is a count, with a + where not all were counted.
func capped(n int64, more bool) string {
	text := strconv.FormatInt(n, 10)
	if more && n > 0 {
		text += "+"
	}
	return text
}

func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return max(0, now.Sub(at)).Round(time.Second).String() + " ago"
}
