package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/argtext"
	"github.com/firstseen/firstseen/dedup/operate"
)

const pauseLong = `Pause a topic, a partition or a handler of an inbox, in all processes that consume into it, until it is resumed: a pause
survives restarts and rebalances. Processes look every two seconds; a batch that is open is finished.

  topic      no message of the topic is processed; offsets stay where they are, and parked messages rest
  partition  the same for one partition of a topic, TOPIC/N
  handler    its messages are parked, in order, while the topic's other handlers go on; after max_parked parked
             messages a partition is held. No attempt is spent
  list       what is paused, since when, by whom and why

Nothing is lost by a pause, unless Kafka's retention is over before the end of it.` + databaseHelp

const pauseExitCodes = `

What was done is kept in the table audit, with --why and --actor.

Exit codes: 0 done, or so already, 1 it failed, 2 wrong usage or config.`

// pausing is pause or resume.
type pausing struct {
	verb, done, already string
	run                 func(*operate.Inbox, context.Context, dedup.Pause, operate.By) (bool, error)
}

var (
	pauses  = pausing{"pause", "paused", "was paused already", (*operate.Inbox).Pause}
	resumes = pausing{"resume", "resumed", "was not paused", (*operate.Inbox).Resume}
)

func newPause() *cobra.Command {
	i := &inspected{}
	cmd := newPausing(i, pauses)
	cmd.Short, cmd.Long = "Pause a topic, a partition or a handler", pauseLong
	cmd.Example = `  firstseen pause handler book --why "ledger is being moved"
  firstseen pause topic orders --why "incident 482"
  firstseen pause list`
	cmd.AddCommand(newPauseList(i))
	return cmd
}

func newResume() *cobra.Command {
	cmd := newPausing(&inspected{}, resumes)
	cmd.Short = "Resume what was paused"
	cmd.Long = `Resume a topic, a partition or a handler that was paused (see firstseen pause). What a handler has parked meanwhile is
handled in order, before later messages of the same key, and with all attempts before it.` + databaseHelp
	cmd.Example = `  firstseen resume handler book --why "ledger is there again"`
	return cmd
}

func newPausing(i *inspected, v pausing) *cobra.Command {
	cmd := parentOf(&cobra.Command{Use: v.verb},
		newPausingKind(i, v, dedup.PauseTopic, "NAME"), newPausingKind(i, v, dedup.PauseHandler, "NAME"))
	i.addFlags(cmd)
	if !i.outbox {
		cmd.AddCommand(newPausingKind(i, v, dedup.PausePartition, "TOPIC/N"))
	}
	return cmd
}

func newPausingKind(i *inspected, v pausing, kind dedup.PauseKind, name string) *cobra.Command {
	var by operate.By
	what, all := string(kind), "of the inbox, for all processes that consume into it"
	if i.outbox {
		all = "of the outbox, for all processes that send its messages"
	}
	if kind == dedup.PauseHandler {
		what = i.handlerFlag()
	}
	cmd := &cobra.Command{
		Use:   fmt.Sprintf("%s %s --why TEXT", what, name),
		Short: fmt.Sprintf("%s a %s", upper(v.verb), what),
		Long:  fmt.Sprintf("%s a %s %s.", upper(v.verb), what, all) + databaseHelp + pauseExitCodes,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(cmd, "say which %s: one %s", what, name)
		}
		p, err := dedup.PauseOf(kind, args[0])
		switch {
		case err != nil:
			return usage(cmd, "%v", err)
		case by.Why == "":
			return usage(cmd, "--why is required: it is kept for those who come after")
		}
		return i.withStore(cmd,
			func(ctx context.Context, s *operate.Inbox) error { return i.pause(ctx, cmd, s, v, p, by) })
	}
	cmd.Flags().StringVar(&by.Why, "why", "", "`text` for those who come after; required")
	cmd.Flags().StringVar(&by.Actor, "actor", actor(), "`name` of who does it")
	return cmd
}

func upper(verb string) string { return string(verb[0]-'a'+'A') + verb[1:] }

// pause pauses or resumes, and says whether that changed anything.
func (i *inspected) pause(ctx context.Context, cmd *cobra.Command, s *operate.Inbox, v pausing, p dedup.Pause,
	by operate.By) error {
	changed, err := v.run(s, ctx, p, by)
	if err != nil {
		return err
	}
	if err := warnOfUnknown(ctx, cmd, s, p); err != nil {
		return err
	}
	if i.json {
		return printJSON(cmd.OutOrStdout(), view.PauseChangedOf(s.Name(), v.verb, p, changed))
	}
	done := v.done
	if !changed {
		done = v.already
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "inbox %s: %s %s\n", terminal.OneLine(s.Name()),
		terminal.OneLine(p.String()), done)
	return err
}

// warnOfUnknown says on standard error that nothing of the name has been seen. It may be a slip, or come later.
func warnOfUnknown(ctx context.Context, cmd *cobra.Command, s *operate.Inbox, p dedup.Pause) error {
	known, err := s.Pausable(ctx, p.Kind)
	if err != nil || slices.Contains(known, p.Name()) {
		return err
	}
	hint := ""
	if near := argtext.Nearest(p.Name(), known); near != "" {
		hint = "; did you mean " + strconv.Quote(near) + "?"
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "firstseen: warning: inbox %s has seen no %s %q yet%s\n",
		terminal.OneLine(s.Name()), p.Kind, p.Name(), hint)
	return err
}

func newPauseList(i *inspected) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is paused",
		Long: `List what is paused in the inbox: since when, by whom and why.

Exit codes: 0 listed, even if there is nothing, 1 it failed, 2 wrong usage or config.`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			list, err := s.Pauses(ctx)
			switch {
			case err != nil:
				return err
			case i.json:
				return printJSON(cmd.OutOrStdout(), view.PausesOf(s.Name(), list))
			}
			return printPauses(cmd.OutOrStdout(), s.Name(), list)
		})
	}
	return cmd
}

func printPauses(out io.Writer, inbox string, list []dedup.Pause) error {
	if len(list) == 0 {
		_, err := fmt.Fprintf(out, "inbox %s: nothing is paused\n", terminal.OneLine(inbox))
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "SINCE (UTC)\tKIND\tNAME\tBY\tWHY")
	for _, p := range list {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.At.UTC().Format(time.DateTime), p.Kind,
			terminal.Brief(p.Name(), 60), terminal.Brief(p.Actor, 40), terminal.Brief(p.Why, 70))
	}
	return table.Flush()
}
