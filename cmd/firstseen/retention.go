package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/retention"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

const retentionLong = `Look at what retention would delete, and have it delete that now. ` + "`firstseen run`" + ` does it by itself, every
retention.interval, where the config says so; without retention.ids, retention.handlers, retention.outbox_keys and
retention.inbox nothing is ever deleted but answers to HTTP requests that have expired.

  plan   what would go, and what is kept because a topic may bring it again
  run    delete it now

A message ID must be known for as long as its message can come again, or it takes effect again. So IDs are kept, whatever
the config says, while one of these holds for a topic and a consumer that has a position in the schema:

  - the offset that the consumer has committed to Kafka has not come up to its position in Postgres, or a replay goes on
  - the topic may hold messages for longer (retention.ms + segment.ms + an hour), or keeps them for ever, or is compacted
  - the topic still holds a message that is older

What a producer sends again later than that takes effect again. IDs of parked messages and dead letters are always kept.
A message of the outbox is in no topic, so its ID and its idempotency key are kept for as long as retention.outbox_keys says,
from when it was sent; what is not sent yet, or was given up, keeps them. Then one of the same key is sent again.

Inbox days are dropped whole, in UTC; sent messages lie in them as processed ones do. All inboxes of a schema share them:
the shortest retention.inbox counts.

Answers to HTTP requests say themselves how long they are kept. Those that have expired are deleted whatever the config
says, hourly by ` + "`firstseen run`" + `, and by the programs that made them; a run does it too.

The login needs the role firstseen_retention beside its own. The table firstseen.upkeep_limits, which only the schema's
owner may change, has the least ages that can be asked for: 1 hour for IDs, and 1 day for the inbox.

A program with handlers of its own does it by package consumer/service. Give --ids and --keep as its policy has them.` + groupHelp

func newRetention() *cobra.Command {
	k := &keeping{}
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Look at what is old enough to be deleted, and delete it",
		Long:  retentionLong,
		Example: `  firstseen retention plan
  firstseen retention plan --brokers kafka-1:9092 --group billing --dsn "$POSTGRES" --ids 400d --keep 90d
  firstseen retention run --why "disk is full, incident 512"`,
	}
	k.addFlags(cmd)
	k.addGroupFlags(cmd)
	flags := cmd.PersistentFlags()
	flags.Lookup("dsn").Usage = "connection `string`, instead of the config's; its login has the role firstseen_retention"
	flags.StringVar(&k.ids, "ids", "", "`time` that IDs are kept, 400d say, instead of retention.ids")
	flags.StringVar(&k.days, "keep", "", "`time` that the inbox is kept, 90d say, instead of retention.inbox")
	return parentOf(cmd, newRetentionPlan(k), newRetentionRun(k))
}

type keeping struct {
	clusterOf
	ids, days string
}

// config is the group's, with the ages of the flags.
func (k *keeping) config(cmd *cobra.Command) (live *config.Live, err error) {
	for _, age := range []struct {
		flag, text string
		into       *time.Duration
	}{{"ids", k.ids, &k.given.IDs}, {"keep", k.days, &k.given.Days}} {
		if age.text == "" {
			continue
		}
		if *age.into, err = config.ParseDuration(age.text); err != nil || *age.into <= 0 {
			return nil, usage(cmd, "--%s: %q is no time like 90d or 36h", age.flag, age.text)
		}
	}
	return k.clusterOf.config()
}

func newRetentionPlan(k *keeping) *cobra.Command {
	return &cobra.Command{
		Use:   "plan",
		Short: "Say what would be deleted, and what is kept and why",
		Long: `Say what a run would delete now, and what it would keep and why. Nothing is changed. Numbers of IDs are estimates from a
sample of the table.

Exit codes: 0 told, 1 it failed, 2 wrong usage or config.`,
		Example: "  firstseen retention plan --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return k.withKeeper(cmd, func(ctx context.Context, keeper *retention.Keeper, policy retention.Policy) error {
				plan, ids, err := estimate(ctx, keeper, policy)
				if err != nil {
					return err
				}
				expired, unknown := keeper.Answers.Expired(ctx)
				if k.json {
					return printJSON(cmd.OutOrStdout(), view.RetentionPlanOf(&plan, ids, expired, unknown == nil))
				}
				return printPlan(cmd.OutOrStdout(), plan, ids, answersText(expired, unknown))
			})
		},
	}
}

// estimate is what would be deleted, and about how many IDs are old enough, whether they may go or not.
func estimate(ctx context.Context, k *retention.Keeper, policy retention.Policy) (plan retention.Plan,
	ids view.RetentionEstimate, err error) {
	if plan, err = k.Plan(ctx, policy); err != nil {
		return plan, ids, err
	}
	if ids.Handlers, err = k.Inbox.EstimateForget(ctx, retention.Forgets(plan.Handlers, true)); err != nil {
		return plan, ids, err
	}
	ids.Destinations, err = k.Inbox.Outbox().EstimateForget(ctx, retention.Forgets(plan.Destinations, true))
	return plan, ids, err
}

// answersText tells of the answers to HTTP requests whose time is over.
func answersText(expired int, unknown error) string {
	switch {
	case unknown != nil:
		return "answers to HTTP requests: not known: " + unknown.Error()
	case expired == retention.MaxExpired:
		return "answers to HTTP requests: more than " + terminal.Grouped(retention.MaxExpired-1) + " have expired"
	}
	return "answers to HTTP requests: " + terminal.Grouped(int64(expired)) + " have expired"
}

func newRetentionRun(k *keeping) *cobra.Command {
	var by operate.By
	var force bool
	var confirm confirmation
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Delete now what is old enough",
		Long: `Delete now what plan shows, as ` + "`firstseen run`" + ` does by itself every retention.interval. It works in short transactions, so
that consumers go on meanwhile.

--force deletes IDs also where a topic may bring their messages again: those then take effect a second time. It asks: give
--yes, or type at a terminal how many they are, which is an estimate.

What was done is kept in the table audit, with --why and --actor.

Exit codes: 0 done, 1 it failed, or IDs were kept because a topic may bring their messages again, 2 wrong usage or config, or not
confirmed.`,
		Example: `  firstseen retention run --why "disk is full, incident 512"`,
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if by.Why == "" {
			return usage(cmd, "--why is required: it is kept with what was done")
		}
		return k.withKeeper(cmd, func(ctx context.Context, keeper *retention.Keeper, policy retention.Policy) error {
			policy.Force = policy.Force || force
			if force {
				if err := confirmForce(ctx, cmd, keeper, policy, &confirm); err != nil {
					return err
				}
			}
			done, err := keeper.Run(ctx, policy, by)
			if err == nil {
				done.Answers, err = keeper.Answers.Sweep(ctx)
			}
			return k.report(cmd, done, policy.Force, err)
		})
	}
	cmd.Flags().BoolVar(&force, "force", false, "delete IDs also where a topic may bring their messages again")
	confirm.addFlag(cmd)
	cmd.Flags().StringVar(&by.Why, "why", "", "`text` for those who come after; required")
	cmd.Flags().StringVar(&by.Actor, "actor", actor(), "`name` of who does it")
	return cmd
}

// confirmForce asks before IDs go whose messages may come again.
func confirmForce(ctx context.Context, cmd *cobra.Command, keeper *retention.Keeper, policy retention.Policy,
	asks *confirmation) error {
	if asks.yes {
		return nil
	}
	_, ids, err := estimate(ctx, keeper, policy)
	if err != nil {
		return err
	}
	var all int64
	for _, n := range ids.Handlers {
		all += n
	}
	return asks.ask(cmd, all, "About "+terminal.Grouped(all)+" IDs will be forgotten, whose messages take effect again "+
		"if they come again")
}

// withKeeper connects to both sides, and runs do until it is done or a signal comes.
func (k *keeping) withKeeper(cmd *cobra.Command,
	do func(context.Context, *retention.Keeper, retention.Policy) error) error {
	live, err := k.config(cmd)
	if err != nil {
		return err
	}
	cfg := live.Load()
	policy := cfg.Retention.Policy()
	if !policy.Deletes() {
		return errors.New("the config has neither retention.ids nor retention.handlers nor retention.outbox_keys nor " +
			"retention.inbox, and neither --ids nor --keep is given: nothing is ever deleted, but for answers to HTTP " +
			"requests that have expired, hourly by `firstseen run`")
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pool, err := openPool(ctx, cfg, retention.Pool)
	if err != nil {
		return err
	}
	defer dedup.ClosePool(pool)
	inbox, err := operate.Open(ctx, pool, cfg.Store())
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	settings, err := cfg.Consumer(log)
	if err != nil {
		return err
	}
	keeper, err := retention.New(retention.Config{Inbox: inbox, Kafka: settings.Connection,
		CommitInterval: settings.CommitInterval, Logger: log})
	if err != nil {
		return err
	}
	defer keeper.Close()
	return do(ctx, keeper, policy)
}

func printPlan(out io.Writer, p retention.Plan, ids view.RetentionEstimate, answers string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "HANDLER\tIDS KEPT FOR\tGO IF FIRST SEEN BEFORE (UTC)\tIDS (ESTIMATED)\t")
	printHandlers(table, "", p.Handlers, ids.Handlers)
	printHandlers(table, "outbox: ", p.Destinations, ids.Destinations)
	if err := table.Flush(); err != nil {
		return err
	}
	var bytes int64
	for _, d := range p.Days {
		bytes += d.Bytes
	}
	text := "inbox: kept for ever\n"
	switch {
	case len(p.Days) > 0:
		text = fmt.Sprintf("inbox: %s would be dropped, %s to %s, %s\n", terminal.Count(len(p.Days), "day"),
			p.Days[0].Day.Format(time.DateOnly),
			p.Days[len(p.Days)-1].Day.Format(time.DateOnly), terminal.Bytes(bytes))
	case !p.InboxBefore.IsZero():
		text = "inbox: no day is old enough\n"
	}
	if _, err := io.WriteString(out, text+terminal.OneLine(answers)+"\n"); err != nil {
		return err
	}
	return printRefused(out, p)
}

func printHandlers(table io.Writer, before string, list []retention.Handler, ids map[string]int64) {
	for _, h := range list {
		name := before + terminal.Brief(h.Name, 40)
		if h.Age == 0 {
			_, _ = fmt.Fprintf(table, "%s\tever\t\t\t\n", name)
			continue
		}
		fate := "go"
		if len(h.Refusals) > 0 {
			fate = "kept: see below"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, h.Age, h.Before.UTC().Format(time.DateTime),
			terminal.Grouped(ids[h.Name]), fate)
	}
}

func printRefused(out io.Writer, p retention.Plan) error {
	refused := p.Refused()
	if len(refused) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(out, "\nIDs are kept, because their messages may come again:")
	for _, r := range refused {
		if err == nil {
			_, err = fmt.Fprintln(out, "  - "+terminal.OneLine(r.Text))
		}
	}
	return err
}

func (k *keeping) report(cmd *cobra.Command, d retention.Done, forced bool, err error) error {
	out := cmd.OutOrStdout()
	done := fmt.Sprintf("%s IDs forgotten, %s of the inbox dropped (%s)",
		terminal.Grouped(d.IDs+d.OutboxIDs), terminal.Count(d.Dropped.Days, "day"), terminal.Bytes(d.Dropped.Bytes))
	refused := d.Plan.Refused()
	if forced {
		refused = nil
	}
	switch {
	case err != nil && (d.IDs > 0 || d.OutboxIDs > 0 || d.Dropped.Days > 0):
		return fmt.Errorf("%s; then: %w", done, err)
	case err != nil:
		return err
	case k.json:
		err = printJSON(out, view.RetentionDoneOf(&d, refused))
	default:
		if d.Answers > 0 {
			done += fmt.Sprintf("; %s answers to HTTP requests deleted", terminal.Grouped(int64(d.Answers)))
		}
		if d.Dropped.Busy > 0 {
			done += fmt.Sprintf("; %s in use, for the next run", terminal.Count(d.Dropped.Busy, "day"))
		}
		_, err = fmt.Fprintln(out, done)
	}
	if err == nil && len(refused) > 0 {
		return errors.New("IDs are kept, because their messages may come again: " + refused[0].Text +
			"; see `firstseen retention plan`")
	}
	return err
}
