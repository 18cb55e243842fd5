package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/cmd/internal/view"
	"github.com/firstseen/firstseen/dedup/operate"
)

// change is redrive or discard.
type change struct {
	verb, done string
	count      func(*operate.Inbox, context.Context, operate.Filter) (int, error)
	run        func(*operate.Inbox, context.Context, operate.Filter, operate.By) (int, error)
}

func newDeadRedrive(i *inspected) *cobra.Command {
	cmd := newChange(i, change{"redrive", "redriven", (*operate.Inbox).CountRedrive, (*operate.Inbox).Redrive})
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
	cmd := newChange(i, change{"discard", "discarded", (*operate.Inbox).CountDeadLetters, (*operate.Inbox).Discard})
	cmd.Short = "Forget dead letters for good"
	cmd.Long = `Forget the dead letters that match for good, content and all. Their IDs stay seen: a copy that arrives later is a
duplicate and is not handled. To keep their content, list them with --json first.
` + changeHelp
	cmd.Example = `  firstseen dead discard --id order-4711 --why "test order, agreed with sales"`
	return cmd
}

const changeHelp = `
What was done is kept in the table audit, with --why and --actor, and ` + "`firstseen explain`" + ` tells it.

Exit codes: 0 done, or counted with --dry-run, 1 it failed or no dead letter matches, 2 wrong usage or config. After a
failure the messages that were counted before it are done; the command may be given again.`

func newChange(i *inspected, c change) *cobra.Command {
	var f filterFlags
	var by operate.By
	var all, dry bool
	cmd := &cobra.Command{Use: c.verb, Args: noArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, narrow, err := f.read(cmd)
		switch {
		case err != nil:
			return err
		case narrow == all:
			return usage(cmd, "say which dead letters to %s: by --id, --topic, --handler and the like, or --all of them", c.verb)
		case by.Why == "" && !dry:
			return usage(cmd, "--why is required: it is kept with each message")
		}
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			if dry {
				n, err := c.count(s, ctx, filter)
				return i.report(cmd, c, n, err, dry)
			}
			n, err := c.run(s, ctx, filter, by)
			return i.report(cmd, c, n, err, dry)
		})
	}
	f.addFlags(cmd, true)
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the inbox")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "count the messages, and change nothing")
	cmd.Flags().StringVar(&by.Why, "why", "", "`text` for those who come after; required")
	cmd.Flags().StringVar(&by.Actor, "actor", actor(), "`name` of who does it")
	return cmd
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

// actor is the login and the machine.
func actor() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}
