package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

const rerunLong = `Have one handler handle messages again that it has processed already: after a bug in the handler, say, once what the first
run did has been undone. WHAT THE HANDLER DOES TAKES EFFECT A SECOND TIME: that is the purpose. Other handlers of the same
messages are not called.

Messages are taken from the inbox, byte for byte, so Kafka need not have them any more; what retention has dropped from the
inbox can't be rerun. They wait in the lanes of their keys, in the order of their offsets, and new messages of these keys
wait behind them. A process that runs the handler is needed; where none runs they wait, and ` + "`firstseen explain`" + ` says so.
Of two reruns of one message at once, one finds it gone.

It says how many messages would be rerun and which come first, and asks: give --yes, or type the number at a terminal. With
--dry-run it only says so. Without --id the inbox is read back day by
day, to --since: no index is kept for that.

With --job it is a job: at most 100,000 messages, given back to the handler in parts by whichever process of the schema runs, which
` + "`firstseen jobs`" + ` shows, pauses and cancels. It is of the messages that are there now, and received by now.

What was done is kept in the table audit, with --why and --actor, and ` + "`firstseen explain`" + ` tells it.` + databaseHelp + `

Exit codes: 0 done, or shown with --dry-run, 1 it failed or no message matches, 2 wrong usage or config, or not confirmed.
After a failure the messages that were counted before it are done.`

type rerunFlags struct {
	filterFlags
	partition, from, to int64
	ordering            string
}

func newRerun() *cobra.Command {
	i := &inspected{}
	var f rerunFlags
	var by operate.By
	var dry, job bool
	var confirm confirmation
	cmd := &cobra.Command{
		Use:   "rerun",
		Short: "Have a handler handle processed messages again",
		Long:  rerunLong,
		Example: `  firstseen rerun --handler book --id order-4711 --why "price was wrong, fixed in 2.3.1" --yes
  firstseen rerun --handler book --topic orders --partition 3 --from-offset 120000 --to-offset 121000 --since 2026-03-01 --dry-run`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, err := f.read(cmd, i)
		switch {
		case err != nil:
			return err
		case confirm.yes && dry:
			return usage(cmd, "--yes or --dry-run, not both")
		case by.Why == "" && !dry:
			return usage(cmd, "--why is required: it is kept with each message")
		}
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			if job {
				return i.makeRerun(ctx, cmd, s, filter, changeAsked{by: by, dry: dry, confirm: confirm})
			}
			if !confirm.yes {
				preview, err := s.CountRerun(ctx, filter)
				if err := i.reportPreview(cmd, preview, err); err != nil || dry {
					return err
				}
				if err := confirm.ask(cmd, int64(preview.Messages), secondTime(preview.Messages)); err != nil {
					return err
				}
			}
			n, err := s.Rerun(ctx, filter, by)
			return i.reportRerun(cmd, n, err)
		})
	}
	i.addFlags(cmd)
	f.addFlags(cmd)
	confirm.addFlag(cmd)
	cmd.Flags().BoolVar(&job, "job", false, "have it done by whichever process runs, in parts, and print the job's ID: see firstseen jobs")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be rerun, and change nothing")
	cmd.Flags().StringVar(&by.Why, "why", "", "`text` for those who come after; required")
	cmd.Flags().StringVar(&by.Actor, "actor", actor(), "`name` of who does it")
	return cmd
}

func secondTime(n int) string {
	return "What the handler does with " + terminal.Count(n, "message") + " takes effect a second time"
}

// makeRerun has whichever process runs rerun the messages that it shows, or only shows them.
func (i *inspected) makeRerun(ctx context.Context, cmd *cobra.Command, s *operate.Inbox, f operate.RerunFilter, asked changeAsked) error {
	plan, err := s.PlanRerun(ctx, f)
	if asked.confirm.yes && err == nil && plan.Messages == 0 {
		return errors.New("no processed message matches: nothing to rerun")
	}
	if !asked.confirm.yes {
		if err := i.reportPreview(cmd, plan.RerunPreview, err); err != nil || asked.dry {
			return err
		}
		if err := asked.confirm.ask(cmd, int64(plan.Messages), secondTime(plan.Messages)); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	j, _, err := s.CreateRerun(ctx, operate.NewRerun{ID: uuid.Must(uuid.NewV7()), Filter: plan.Filter, Set: plan.Set}, asked.by)
	if err != nil {
		return err
	}
	return tellMade(cmd, i.json, j, terminal.Count(plan.Messages, "message")+" will be rerun"+byWhichever)
}

func (f *rerunFlags) addFlags(cmd *cobra.Command) {
	f.filterFlags.addFlags(cmd, false, "handler")
	flags := cmd.Flags()
	flags.Int64Var(&f.partition, "partition", 0, "`number` of the partition that the offsets are of")
	flags.Int64Var(&f.from, "from-offset", 0, "the first `offset`")
	flags.Int64Var(&f.to, "to-offset", 0, "the `offset` to stop before (default: none)")
	flags.StringVar(&f.ordering, "ordering", "",
		"the handler's ordering, `key`, partition or none (default: the config's, or else key)")
	flags.Lookup("handler").Usage = "`name` of the handler; required"
	flags.Lookup("since").Usage = "not received before this `time`: 2h (before now), 2026-03-01, " +
		"or 2026-03-01T04:05:06Z (default 48h, without --id)"
	flags.Lookup("until").Usage = "received before this `time`"
}

func (f *rerunFlags) read(cmd *cobra.Command, i *inspected) (r operate.RerunFilter, err error) {
	changed := func(name string) bool { return cmd.Flags().Changed(name) }
	if r.Filter, _, err = f.filterFlags.read(cmd); err != nil {
		return r, err
	}
	placed := changed("partition") || changed("from-offset") || changed("to-offset")
	switch {
	case r.Handler == "":
		return r, usage(cmd, "--handler is required: say whose messages to run again")
	case placed && (r.Topic == "" || !changed("partition")):
		return r, usage(cmd, "--from-offset and --to-offset are of a --topic and a --partition")
	case f.partition < 0 || f.partition > 1<<31-1 || f.from < 0 || changed("to-offset") && f.to <= f.from:
		return r, usage(cmd, "--partition %d --from-offset %d --to-offset %d: not a range of offsets",
			f.partition, f.from, f.to)
	case !placed && r.IDs == nil && !changed("since") && !changed("until") && r.Key == nil:
		return r, usage(cmd,
			"say which messages: --id, --topic with --partition and --from-offset, --key, --since or --until")
	}
	if placed {
		r.Places = &operate.PlaceRange{Partition: int32(f.partition), From: f.from, To: f.to} //nolint:gosec // checked
	}
	r.Ordering = dedup.Ordering(cmp.Or(f.ordering, i.orderingOf(r.Handler)))
	if err := r.Ordering.Validate(); err != nil {
		return r, usage(cmd, "--ordering: %v", err)
	}
	return r, nil
}

// orderingOf is a handler's ordering by the config, if it is there.
func (i *inspected) orderingOf(handler string) string {
	cfg, _ := config.Load(i.file, i.environ()) // other sections may have faults: they don't matter here
	for _, t := range cfg.Topics {
		for _, h := range t.Handlers {
			if h.Name == handler {
				return h.Ordering
			}
		}
	}
	return ""
}

func (i *inspected) reportPreview(cmd *cobra.Command, p operate.RerunPreview, err error) error {
	out := cmd.OutOrStdout()
	switch {
	case err != nil:
		return err
	case i.json:
		err = printJSON(out, view.RerunPreviewOf(&p))
	default:
		err = printPreview(out, p)
	}
	if err == nil && p.Messages == 0 {
		return errors.New("no processed message matches: nothing to rerun")
	}
	return err
}

// whyMissing tells what to do with a message that can't be rerun.
var whyMissing = map[string]string{
	"unseen":  "was never seen by this handler, or its ID was forgotten by retention",
	"parked":  "is not processed yet: it waits in its lane",
	"dead":    "is a dead letter: redrive it instead",
	"dropped": "was processed, and is not kept any more: its day was dropped from the inbox",
}

func printPreview(out io.Writer, p operate.RerunPreview) error {
	var err error
	say := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(out, format+"\n", args...)
		}
	}
	if p.Messages > 0 {
		say("%s would be rerun, in this order:", terminal.Count(p.Messages, "message"))
	}
	for _, m := range p.First {
		say("  %s  %s/%d@%d  received %s", m.ID, terminal.OneLine(m.Topic), m.Partition, m.Offset,
			m.ReceivedAt.UTC().Format(time.DateTime))
	}
	if n := p.Messages - len(p.First); n > 0 {
		say("  and %d more", n)
	}
	for _, m := range p.Missing {
		say("%s %s", m.ID, whyMissing[m.Why])
	}
	if !p.SearchedFrom.IsZero() {
		say("The inbox was read back to %s UTC; --since reads further.", p.SearchedFrom.UTC().Format(time.DateTime))
	}
	return err
}

func (i *inspected) reportRerun(cmd *cobra.Command, n int, err error) error {
	switch {
	case err != nil && n > 0:
		return fmt.Errorf("%s are on their way to the handler; then: %w", terminal.Count(n, "message"), err)
	case err != nil:
		return err
	case n == 0:
		return errors.New("no processed message matches: nothing to rerun")
	case i.json:
		return printJSON(cmd.OutOrStdout(), view.Changed{Action: "rerun", Messages: n})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s on the way to the handler: processes that run it "+
		"handle them in their lanes\n", terminal.Count(n, "message"))
	return err
}
