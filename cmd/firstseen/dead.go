package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/operate"
)

const deadLong = `Look at dead letters, and redrive or discard them. A dead letter is a message that was given up: its handler failed on
it as often as it may, or for good, or it came without a usable ID. It is kept byte for byte until someone decides.

  list      newest first, with what they died of
  errors    how many died of what
  show      one message whole: headers, key, value, error
  redrive   give messages back to their handlers, whose process has to run; each is handled once
  discard   forget messages for good; their IDs stay seen, so that a copy is a duplicate

An --id is what the producer wrote (a UUID in any spelling, or any other text) or the UUID that list shows.` + databaseHelp

func newDead() *cobra.Command {
	i := &inspected{}
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at dead letters, redrive and discard them",
		Long:  deadLong,
		Example: `  firstseen dead list --since 2h
  firstseen dead show 1b4e28ba-2fa1-11d2-883f-0016d3cca427
  firstseen dead redrive --topic orders --reason attempts_exhausted --why "ledger is back, incident 482"`,
	}
	i.addFlags(cmd)
	return parentOf(cmd, newDeadList(i), newDeadErrors(i), newDeadShow(i), newDeadRedrive(i), newDeadDiscard(i))
}

func newDeadList(i *inspected) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest first",
		Long: `List dead letters, those that died last first. With --json one object: messages, each with its content, and next
where there are more.

Exit codes: 0 listed, even if there are none, 1 it failed, 2 wrong usage or config.`,
		Example: `  firstseen dead list --handler book --since 2h
  firstseen dead list --json --limit 1000 | jq -r '.messages[].error'`,
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
		json: i.messagesJSON})
	return cmd
}

func newDeadErrors(i *inspected) *cobra.Command {
	var f filterFlags
	cmd := &cobra.Command{
		Use:   "errors",
		Short: "Count dead letters by what they died of",
		Long: `Count the dead letters that match by handler and error, the most first. Errors that differ in numbers only are one, with # for
them. The newest 10,000 dead letters are looked at.

Exit codes: 0 counted, even if there are none, 1 it failed, 2 wrong usage or config.`,
		Example: "  firstseen dead errors --since 24h",
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, _, err := f.read(cmd)
		if err != nil {
			return err
		}
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			groups, more, err := s.DeadGroups(ctx, filter)
			if err != nil {
				return err
			}
			return i.reportErrors(cmd, s.Name(), "dead letters", groups, more)
		})
	}
	f.addFlags(cmd, true, i.handlerFlag())
	return cmd
}

func newDeadShow(i *inspected) *cobra.Command {
	cmd := newShow(i, "dead letter", "what became of it", operate.StatusDead)
	cmd.Short = "Show a dead letter whole"
	cmd.Long = `Show everything of the dead letters with that ID; there may be one for each handler. Null is shown as null, empty as
"", text in quotes, and bytes that are no text as \x and hex digits; a value that is no text is dumped. With --json keys,
header values and the value are texts, or base64 where they are not UTF-8.

Exit codes: 0 shown, 1 it failed or there is none, 2 wrong usage or config.`
	cmd.Example = `  firstseen dead show order-4711
  firstseen dead show order-4711 --json | jq -r '.messages[0].content.value | .base64 // (.text | @base64)' | base64 -d`
	return cmd
}

// change is redrive or discard.
type change struct {
	verb, done string
	will       string // be done to them, where that can't be taken back
	count      func(*operate.Inbox, context.Context, operate.Filter) (int, error)
	run        func(*operate.Inbox, context.Context, operate.Filter, operate.By) (int, error)
}

func newDeadRedrive(i *inspected) *cobra.Command {
	cmd := newChange(i, change{"redrive", "redriven", "", (*operate.Inbox).CountRedrive, (*operate.Inbox).Redrive})
	cmd.Short = "Give dead letters back to their handlers"
	cmd.Long = `Give the dead letters that match back to their handlers, with all their attempts before them. They are handled by a
process that runs these handlers; where none runs they wait. Of two redrives of one message at once, one finds nothing.

Offsets, headers and all else stay as they were. Messages of one key are handled in the order of their offsets, and new
ones of that key wait behind them. A batch that is open on their partition is waited for.

Letters that died for want of a message ID (missing_id and the like) stay: redriven, and sent again by their producer, they would take
effect twice. Correct the topic's id, restart, ` + "`firstseen replay`" + ` their offsets, and discard them.
` + changeHelp
	cmd.Example = `  firstseen dead redrive --id order-4711 --why "customer fixed"
  firstseen dead redrive --handler book --reason attempts_exhausted --dry-run
  firstseen dead redrive --all --why "ledger is back, incident 482"`
	return cmd
}

func newDeadDiscard(i *inspected) *cobra.Command {
	cmd := newChange(i, change{"discard", "discarded", "be forgotten for good",
		(*operate.Inbox).CountDeadLetters, (*operate.Inbox).Discard})
	cmd.Short = "Forget dead letters for good"
	cmd.Long = `Forget the dead letters that match for good, content and all. Their IDs stay seen: a copy that arrives later is a
duplicate and is not handled. To keep their content, list them with --json first.` + confirmHelp + `
` + changeHelp
	cmd.Example = `  firstseen dead discard --id order-4711 --why "test order, agreed with sales" --yes`
	return cmd
}

const changeHelp = `
With --job it is done by whichever process of the schema runs, to those dead letters that lie there now: for many, for
it goes on though this command has ended. --dry-run counts up to 10,000 then.

What was done is kept in the table audit, with --why and --actor, and ` + "`firstseen explain`" + ` tells it.

Exit codes: 0 done, or counted with --dry-run, 1 it failed or no dead letter matches, 2 wrong usage or config, or not
confirmed. After a failure the messages that were counted before it are done; the command may be given again.`

// changeAsked is how a change is to be done.
type changeAsked struct {
	by       operate.By
	dry, job bool
	confirm  confirmation
}

func newChange(i *inspected, c change) *cobra.Command {
	var f filterFlags
	var asked changeAsked
	var all bool
	cmd := &cobra.Command{Use: c.verb, Args: noArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, narrow, err := f.read(cmd)
		switch {
		case err != nil:
			return err
		case narrow == all:
			return usage(cmd,
				"say which dead letters to %s: by --id, --topic, --%s and the like, or --all of them", c.verb, i.handlerFlag())
		case asked.by.Why == "" && !asked.dry:
			return usage(cmd, "--why is required: it is kept with each message")
		}
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			if asked.job {
				return i.makeJob(ctx, cmd, s, c, filter, asked)
			}
			if asked.dry {
				n, err := c.count(s, ctx, filter)
				return i.report(cmd, c, n, err, true)
			}
			if err := i.confirm(ctx, cmd, s, c, filter, &asked.confirm); err != nil {
				return err
			}
			n, err := c.run(s, ctx, filter, asked.by)
			return i.report(cmd, c, n, err, false)
		})
	}
	f.addFlags(cmd, true, i.handlerFlag())
	if c.will != "" {
		asked.confirm.addFlag(cmd)
	}
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the inbox")
	cmd.Flags().BoolVar(&asked.job, "job", false,
		"have it done by whichever process runs, in parts, and print the job's ID: see firstseen jobs")
	cmd.Flags().BoolVar(&asked.dry, "dry-run", false, "count the messages, and change nothing")
	cmd.Flags().StringVar(&asked.by.Why, "why", "", "`text` for those who come after; required")
	cmd.Flags().StringVar(&asked.by.Actor, "actor", actor(), "`name` of who does it")
	return cmd
}

// confirm asks before what can't be taken back, where there is something to do.
func (i *inspected) confirm(ctx context.Context, cmd *cobra.Command, s *operate.Inbox, c change, f operate.Filter,
	asks *confirmation) error {
	if c.will == "" || asks.yes {
		return nil
	}
	n, err := c.count(s, ctx, f)
	if err != nil || n == 0 {
		return err
	}
	return asks.ask(cmd, int64(n), terminal.Count(n, "dead letter")+" will "+c.will)
}

// report prints how many messages were changed, or would be.
func (i *inspected) report(cmd *cobra.Command, c change, n int, err error, dry bool) error {
	out := cmd.OutOrStdout()
	switch {
	case err != nil && n > 0 && dry:
		return fmt.Errorf("%s would be %s; then: %w", terminal.Count(n, "dead letter"), c.done, err)
	case err != nil && n > 0:
		return fmt.Errorf("%s are %s; then: %w", terminal.Count(n, "dead letter"), c.done, err)
	case err != nil:
		return err
	case i.json:
		if err := printJSON(out, view.Changed{Action: c.verb, Messages: n, DryRun: dry}); err != nil {
			return err
		}
	case n > 0 && dry:
		_, err = fmt.Fprintf(out, "%s would be %s\n", terminal.Count(n, "dead letter"), c.done)
	case n > 0:
		_, err = fmt.Fprintf(out, "%s %s\n", terminal.Count(n, "dead letter"), c.done)
	}
	if n == 0 {
		return errors.New("no dead letter matches: nothing to " + c.verb)
	}
	return err
}
