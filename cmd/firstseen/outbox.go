package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/operate"
)

const outboxLong = `Look at the messages of the outbox, which transactions have added and relays send, and redrive, discard and pause
them:
  pending    to be sent, with no attempt that failed: also what no relay has taken yet, and what is to be sent later
  failed     to be sent again, after an attempt that failed
  processed  sent
  dead       given up

An --id is the idempotency key that a message was added with (a UUID in any spelling, or any other text), or the UUID
that list shows.` + databaseHelp

func newOutbox() *cobra.Command {
	i := &inspected{outbox: true}
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Look at messages that are sent, redrive, discard and pause them",
		Long:  outboxLong,
		Example: `  firstseen outbox backlog
  firstseen outbox list --status failed --topic billing.events
  firstseen outbox redrive --destination crm --why "crm is back, incident 482"
  firstseen outbox pause destination crm --why "crm is being moved"`,
	}
	i.addFlags(cmd)
	return parentOf(cmd, newOutboxBacklog(i), newOutboxList(i), newOutboxShow(i), newOutboxRedrive(i),
		newOutboxDiscard(i), newOutboxPause(), newOutboxResume())
}

func newOutboxList(i *inspected) *cobra.Command {
	cmd := newInboxList(i)
	cmd.Short = "List messages of one status, the last added first"
	cmd.Long = `List messages of one status: pending ones by when they were added, failed and processed ones by when a relay took
them, dead ones by when they died, the last first. With --json one object: messages, each with its content, and next
where there are more.

Processed messages are read back from the newest, or from --until, to --since, until there are enough: no index leads to
them by topic, destination or key. Narrow the time where that takes long.

Exit codes: 0 listed, even if there are none, 1 it failed, 2 wrong usage or config.`
	cmd.Example = `  firstseen outbox list --status pending --topic billing.events
  firstseen outbox list --status processed --tenant acme --since 24h`
	return cmd
}

func newOutboxShow(i *inspected) *cobra.Command {
	cmd := newInboxShow(i)
	cmd.Long = strings.Replace(cmd.Long, "one for each handler", "one for each tenant", 1)
	cmd.Example = strings.ReplaceAll(cmd.Example, "firstseen inbox", "firstseen outbox")
	return cmd
}

func newOutboxRedrive(i *inspected) *cobra.Command {
	cmd := newDeadRedrive(i)
	cmd.Short = "Have dead letters sent again"
	cmd.Long = `Have the dead letters that match sent again, with all their attempts before them, by a process whose outbox has
their destination; where none runs they wait. Of two redrives of one message at once, one finds nothing.

Messages of one key are sent in the order that they were added in, and new ones of that key wait behind them.
` + changeHelp
	cmd.Example = `  firstseen outbox redrive --id invoice-4711 --why "customer has a mailbox again"
  firstseen outbox redrive --destination crm --reason attempts_exhausted --dry-run`
	return cmd
}

func newOutboxDiscard(i *inspected) *cobra.Command {
	cmd := newDeadDiscard(i)
	cmd.Long = `Forget the dead letters that match for good, content and all: they are not sent. Their idempotency keys stay known.
To keep their content, list them with --json first.` + confirmHelp + `
` + changeHelp
	cmd.Example = `  firstseen outbox discard --id invoice-4711 --why "test invoice, agreed with sales" --yes`
	return cmd
}

func newOutboxPause() *cobra.Command {
	i := &inspected{outbox: true}
	cmd := newPausing(i, pauses)
	cmd.Short = "Pause a topic or a destination"
	cmd.Long = `Pause the sending of a topic's messages, or of a destination's, in all processes, until it is resumed: a pause
survives restarts. Processes look every two seconds; a batch that is being sent is finished. Messages stay in the
outbox, and go on being added.

  topic        no message of the topic is sent
  destination  no message is sent to it
  list         what is paused, since when, by whom and why` + databaseHelp
	cmd.Example = `  firstseen outbox pause destination crm --why "crm is being moved"
  firstseen outbox pause list`
	cmd.AddCommand(newPauseList(i))
	return cmd
}

func newOutboxResume() *cobra.Command {
	cmd := newPausing(&inspected{outbox: true}, resumes)
	cmd.Short = "Resume what was paused"
	cmd.Long = "Resume a topic or a destination that was paused (see firstseen outbox pause)." + databaseHelp
	cmd.Example = `  firstseen outbox resume destination crm --why "crm is there again"`
	return cmd
}

func newOutboxBacklog(i *inspected) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backlog",
		Short: "Count what waits to be sent, by topic",
		Long: `Count what waits to be sent, by topic: pending messages that no attempt has failed on, failed ones, delayed ones
that are not to be sent before a time and no backlog, and dead letters; and since when the one waits that has waited
longest. Of each kind 100,001 are counted at most.

Exit codes: 0 counted, even if there are none, 1 it failed, 2 wrong usage or config.`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			found, err := s.OutboxBacklog(ctx)
			switch {
			case err != nil:
				return err
			case i.json:
				return printJSON(cmd.OutOrStdout(), view.OutboxBacklogOf(found))
			}
			return printBacklog(cmd, found)
		})
	}
	return cmd
}

func printBacklog(cmd *cobra.Command, found []operate.OutboxBacklog) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "outbox: nothing waits, and nothing was given up")
		return err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "TOPIC\tPENDING\tFAILED\tDELAYED\tDEAD\tOLDEST (UTC)")
	for _, b := range found {
		oldest, more := "", ""
		if !b.OldestAt.IsZero() {
			oldest = b.OldestAt.UTC().Format(time.DateTime)
		}
		if b.Capped {
			more = " or more"
		}
		_, _ = fmt.Fprintf(table, "%s\t%d%s\t%d\t%d\t%d\t%s\n", terminal.Brief(b.Topic, 60), b.Pending, more, b.Failed,
			b.Delayed, b.Dead, oldest)
	}
	return table.Flush()
}
