package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/retention"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/cmd/internal/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

const retentionLong = `Look at what retention would delete, and have it delete that now. ` + "`firstseen run`" + ` does it by itself, every
retention.interval, where the config says so; without retention.ids, retention.handlers and retention.inbox nothing is ever
deleted.

  plan   what would go, and what is kept because a topic may bring it again
  run    delete it now

A message ID must be known for as long as its message can come again, or it takes effect again. So IDs are kept, whatever
the config says, while one of these holds for a topic and a consumer that has a position in the schema:

  - the offset that the consumer has committed to Kafka has not come up to its position in Postgres, or a replay goes on
  - the topic may hold messages for longer (retention.ms + segment.ms + an hour), or keeps them for ever, or is compacted
  - the topic still holds a message that is older

What a producer sends again later than that takes effect again. IDs of parked messages and dead letters are always kept.
Inbox days are dropped whole, in UTC; all inboxes of a schema share them: the shortest retention.inbox counts.

The login needs the role firstseen_retention beside its own. The table firstseen.upkeep_limits, which only the schema's
owner may change, has the least ages that can be asked for: 1 hour for IDs, and 1 day for the inbox.

The config is that of ` + "`firstseen run`" + `: --config, the file that FIRSTSEEN_CONFIG names, or ./firstseen.yaml.`

func newRetention() *cobra.Command {
	k := &keeping{}
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Look at what is old enough to be deleted, and delete it",
		Long:  retentionLong,
		Example: `  firstseen retention plan
  firstseen retention run --why "disk is full, incident 512"`,
		Args: onlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&k.file, "config", "",
		"config `file` (default $FIRSTSEEN_CONFIG, or firstseen.yaml if it is there)")
	flags.BoolVar(&k.json, "json", false, "print JSON")
	cmd.AddCommand(newRetentionPlan(k), newRetentionRun(k))
	return cmd
}

// keeping is what the subcommands work with.
type keeping struct {
	file string
	json bool
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
			return k.withKeeper(cmd, func(ctx context.Context, keeper *retention.Keeper, cfg config.Config) error {
				plan, err := keeper.Plan(ctx, cfg.Retention)
				if err != nil {
					return err
				}
				before := map[string]time.Time{}
				for _, h := range plan.Handlers {
					if h.Age > 0 {
						before[h.Name] = h.Before
					}
				}
				ids, err := keeper.Inbox.EstimateForget(ctx, before)
				if err != nil {
					return err
				}
				if k.json {
					return printJSON(cmd.OutOrStdout(), view.RetentionPlanOf(&plan, ids))
				}
				return printPlan(cmd.OutOrStdout(), plan, ids)
			})
		},
	}
}

func newRetentionRun(k *keeping) *cobra.Command {
	var by operate.By
	var force bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Delete now what is old enough",
		Long: `Delete now what plan shows, as ` + "`firstseen run`" + ` does by itself every retention.interval. It works in short transactions, so
that consumers go on meanwhile.

--force deletes IDs also where a topic may bring their messages again: those then take effect a second time.

What was done is kept in the table audit, with --why and --actor.

Exit codes: 0 done, 1 it failed, or IDs were kept because a topic may bring their messages again, 2 wrong usage or config.`,
		Example: `  firstseen retention run --why "disk is full, incident 512"`,
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if by.Why == "" {
			return usage(cmd, "--why is required: it is kept with what was done")
		}
		return k.withKeeper(cmd, func(ctx context.Context, keeper *retention.Keeper, cfg config.Config) error {
			cfg.Retention.Force = cfg.Retention.Force || force
			done, err := keeper.Run(ctx, cfg.Retention, by)
			return k.report(cmd, done, cfg.Retention.Force, err)
		})
	}
	cmd.Flags().BoolVar(&force, "force", false, "delete IDs also where a topic may bring their messages again")
	cmd.Flags().StringVar(&by.Why, "why", "", "`text` for those who come after; required")
	cmd.Flags().StringVar(&by.Actor, "actor", actor(), "`name` of who does it")
	return cmd
}

// withKeeper connects to both sides, and runs do until it is done or a signal comes.
func (k *keeping) withKeeper(cmd *cobra.Command, do func(context.Context, *retention.Keeper,
	config.Config) error) error {
	cfg, err := config.Load(k.file, os.Environ())
	if err != nil {
		return err
	}
	r := cfg.Retention
	if r.IDs == 0 && r.Inbox == 0 && len(r.Handlers) == 0 {
		return errors.New("the config has neither retention.ids nor retention.handlers nor " +
			"retention.inbox: nothing is ever deleted")
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pool, err := retentionPool(ctx, cfg)
	if err != nil {
		return err
	}
	defer closePool(pool)
	inbox, err := operate.Open(ctx, pool,
		dedup.Config{Inbox: cmp.Or(cfg.Inbox, cfg.Group), Schema: cfg.Postgres.Schema})
	if err != nil {
		return err
	}
	keeper, err := newKeeper(cfg, inbox, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	if err != nil {
		return err
	}
	defer keeper.Cluster.Close()
	return do(ctx, keeper, cfg)
}

// newKeeper makes what does retention. Its Cluster is to be closed.
func newKeeper(cfg config.Config, inbox *operate.Inbox, log *slog.Logger) (*retention.Keeper, error) {
	settings, err := cfg.Consumer(log)
	if err != nil {
		return nil, err
	}
	cluster, err := newCluster(settings)
	if err != nil {
		return nil, err
	}
	return &retention.Keeper{Inbox: inbox, Cluster: cluster, Settle: min(time.Minute,
		5*cmp.Or(cfg.Timeouts.CommitInterval, time.Second)), Logger: log}, nil
}

// keep does retention beside the consumer, over connections of its own, as the config says at each time, until stop is
// called, which waits for it.
func keep(ctx context.Context, live *config.Live, inbox *operate.Inbox, log *slog.Logger) (stop func(), err error) {
	pool, err := retentionPool(ctx, live.Load())
	if err != nil {
		return nil, err
	}
	keeper, err := newKeeper(live.Load(), inbox.On(pool), log)
	if err != nil {
		closePool(pool)
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var loop sync.WaitGroup
	loop.Go(func() {
		keeper.Loop(ctx, func() config.Retention { return live.Load().Retention }, "retention of "+actor())
	})
	return func() {
		cancel()
		loop.Wait()
		keeper.Cluster.Close()
		closePool(pool)
	}, nil
}

// retentionPool has a connection to work on and one for the lock, while they are needed.
func retentionPool(ctx context.Context, cfg config.Config) (*pgxpool.Pool, error) {
	conf, err := cfg.Pool()
	if err != nil {
		return nil, err
	}
	conf.MinConns, conf.MinIdleConns, conf.MaxConns, conf.MaxConnIdleTime = 0, 0, 2, time.Minute
	return pgxpool.NewWithConfig(ctx, conf)
}

func printPlan(out io.Writer, p retention.Plan, ids map[string]int64) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "HANDLER\tIDS KEPT FOR\tGO IF FIRST SEEN BEFORE (UTC)\tIDS (ESTIMATED)\t")
	for _, h := range p.Handlers {
		switch {
		case h.Age == 0:
			_, _ = fmt.Fprintf(table, "%s\tever\t\t\t\n", terminal.Brief(h.Name, 40))
		case len(h.Refusals) > 0:
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\tkept: see below\n", terminal.Brief(h.Name, 40), h.Age,
				h.Before.UTC().Format(time.DateTime), terminal.Grouped(ids[h.Name]))
		default:
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\tgo\n", terminal.Brief(h.Name, 40), h.Age,
				h.Before.UTC().Format(time.DateTime), terminal.Grouped(ids[h.Name]))
		}
	}
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
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	return printRefused(out, p)
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
		terminal.Grouped(d.IDs), terminal.Count(d.Dropped.Days, "day"), terminal.Bytes(d.Dropped.Bytes))
	refused := d.Plan.Refused()
	if forced {
		refused = nil
	}
	switch {
	case err != nil && (d.IDs > 0 || d.Dropped.Days > 0):
		return fmt.Errorf("%s; then: %w", done, err)
	case err != nil:
		return err
	case k.json:
		err = printJSON(out, view.RetentionDoneOf(&d, refused))
	default:
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
