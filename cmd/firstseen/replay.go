package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// exitInterrupted is replay's code for an end by a signal: the same command goes on.
const exitInterrupted = 3

const replayLong = `Read a part of a topic again, beside the running group, and give each message to the config's handlers as ` + "`firstseen run`" + `
does: what they have seen is a duplicate and has no effect, what they have not is handled once. The group and its offsets
are left alone. Use it after messages were skipped or lost from Postgres, or to fill a handler that was added later. To have
messages handled that were handled already, see ` + "`firstseen rerun`" + `. Where retention.ids is set, IDs have been forgotten:
their messages are new, and are handled AGAIN.

--from and --to are one of

  earliest, latest     the first message that Kafka has left; the end (the default of --to)
  4711                 an offset, in each partition
  2h                   the first message of the last two hours
  2026-03-01T04:05:06Z the first message at or after a time; UTC where no zone is given

What is at --to is not read. Both are found out once, when the replay begins. Nothing beyond the group's position is read:
that is for ` + "`firstseen run`" + ` to read, in its order.

How far it is is kept in Postgres with each batch. Interrupted, killed or failed, it goes on where it was when the same
command is given again; at its end it does nothing any more, until --fresh begins it anew. Given twice at once, the
second goes on and the first one ends.

A message that a handler fails on is parked or goes to the dead letters, as ever; ` + "`firstseen run`" + ` works on what is parked, and
calls the webhooks. The replay waits while more than max_parked messages of a partition are.

Order: within the replay messages take effect in the order of their offsets. But while the group goes on, an old message
that was never handled takes effect AFTER newer ones of its key that were. Where a handler can't bear that, let it rest
meanwhile. To fill a new handler in order:

  1. firstseen pause handler NAME   before the config has it: its messages wait, in order
  2. add it to the config and restart ` + "`firstseen run`" + `
  3. firstseen replay TOPIC --from earliest --handler NAME
     once all processes run with the new config: it is given what the group has passed by then
  4. firstseen resume handler NAME

A replay takes no notice of pauses, which is why step 3 works.

--dry-run reads the range and tells what would become of the messages, and writes nothing. It foresees no failures. It
remembers a million new IDs: where there are more, copies far apart may count as new, which it says.

With --job it is a job: a process of the group that runs reads the topic again, beside what else it does, and ` + "`firstseen jobs`" + `
shows, pauses and cancels it. What was asked for by a time before now begins at that time, whenever the job does. Who makes it
needs the rights of firstseen_operator.

A program with handlers of its own, in Go, replays by itself, in a few lines: see docs/GUIDE.md.` + clusterHelp + overShards + ` Each is given the
messages of its own partitions.

Exit codes: 0 done, also when it was done before, 1 it failed, 2 wrong usage or config, 3 interrupted by a signal: the same
command goes on.`

type replayCommand struct {
	clusterOf
	from, to      string
	partitions    []int32
	handler, name string
	onLoss        string
	rate          int
	dry, fresh    bool
	job           bool
	by            operate.By
	progress      *terminal.Progress
}

func newReplay() *cobra.Command {
	r := &replayCommand{}
	cmd := &cobra.Command{
		Use:   "replay TOPIC",
		Short: "Read a part of a topic again",
		Long:  replayLong,
		Example: `  firstseen replay orders --from earliest --dry-run
  firstseen replay orders --from 2h --rate 1000
  firstseen replay orders --from earliest --handler ledger
  firstseen replay orders --from 2026-03-01 --job --why "the ledger lost a day"`,
		Args: oneTopic,
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.overShards(cmd, r.json, func() error { return r.run(cmd, args[0]) })
		},
	}
	r.addFlags(cmd)
	cmd.PersistentFlags().Lookup("dsn").Usage = "connection `string`, instead of the config's; with --dry-run or --job " +
		"the role firstseen_operator is enough"
	flags := cmd.Flags()
	flags.StringVar(&r.from, "from", "", "`place` to begin at; required")
	flags.StringVar(&r.to, "to", string(consumer.Latest), "`place` to end at")
	flags.Int32SliceVar(&r.partitions, "partitions", nil, "`numbers` of the partitions, separated by commas (default "+
		"all)")
	flags.StringVar(&r.handler, "handler", "", "`name` of the only handler to give messages to (default all of the "+
		"topic)")
	flags.StringVar(&r.name, "name", "", "`name` to keep its progress under (default the topic's, and the handler's)")
	flags.StringVar(&r.onLoss, "on-loss", string(consumer.Fail),
		"`what` to do where messages are not in Kafka any more: fail, or continue")
	flags.IntVar(&r.rate, "rate", 0, "most `messages` a second (default no limit)")
	flags.BoolVar(&r.dry, "dry-run", false, "tell what would become of the messages, and write nothing")
	flags.BoolVar(&r.fresh, "fresh", false, "begin anew what was begun or done before")
	flags.BoolVar(&r.job, "job", false, "have it done by a process of the group that runs, and print the job's ID: see firstseen jobs")
	flags.StringVar(&r.by.Why, "why", "", "`text` for those who come after; required with --job")
	flags.StringVar(&r.by.Actor, "actor", actor(), "`name` of who has it done")
	return cmd
}

// asked makes the replay's config of the command line's flags and the program's config.
func (r *replayCommand) asked(cmd *cobra.Command, cfg config.Config, topic string) (ask replay.Config, err error) {
	now := time.Now()
	if r.from == "" {
		return ask, usage(cmd, "--from is required: earliest, an offset, a duration like 2h, or a time")
	}
	if ask.From, err = replay.ParsePlace(r.from, now); err != nil {
		return ask, usage(cmd, "--from: %v", err)
	}
	if ask.To, err = replay.ParsePlace(r.to, now); err != nil {
		return ask, usage(cmd, "--to: %v", err)
	}
	if r.onLoss != string(consumer.Fail) && r.onLoss != string(consumer.Continue) {
		return ask, usage(cmd, "--on-loss: %q is neither fail nor continue", r.onLoss)
	}
	if r.rate < 0 {
		return ask, usage(cmd, "--rate: %d is below 0", r.rate)
	}
	if err := r.checkJob(cmd); err != nil {
		return ask, err
	}
	ask.Group, ask.Partitions, ask.Rate, ask.Fresh, ask.MaxParked = cfg.Group, r.partitions, r.rate, r.fresh,
		cfg.MaxParked
	ask.Handler, ask.Name, ask.Home = r.handler, r.name, cfg.Postgres.Home()
	if ask.Name == "" {
		ask.Name = strings.TrimSuffix(topic+"/"+r.handler, "/")
	}
	return ask, r.checkTopic(cmd, cfg, topic)
}

func (r *replayCommand) checkTopic(cmd *cobra.Command, cfg config.Config, topic string) error {
	of, is := cfg.TopicOf(topic)
	if !is {
		return usage(cmd, "the config has no topic %s; it has: %s", topic,
			strings.Join(mapped(cfg.Topics, config.Topic.Label), ", "))
	}
	names := mapped(of.Handlers, func(h config.Handler) string { return h.Name })
	if r.handler != "" && !slices.Contains(names, r.handler) {
		return usage(cmd, "topic %s has no handler %s; it has: %s", topic, r.handler, strings.Join(names, ", "))
	}
	return nil
}

func (r *replayCommand) run(cmd *cobra.Command, topic string) error {
	live, err := r.config()
	if err != nil {
		return err
	}
	cfg := live.Load()
	ask, err := r.asked(cmd, cfg, topic)
	if err != nil {
		return err
	}
	r.progress = terminal.NewProgress(cmd.ErrOrStderr(), topic)
	log := live.Logger(r.progress)
	ctx, stop := untilSignal(cmd.Context(), log)
	defer stop()
	pool, err := openPool(ctx, cfg, nil)
	if err != nil {
		return err
	}
	defer dedup.ClosePool(pool)
	return r.replay(ctx, cmd, cfg, pool, ask, topic, log)
}

// replay connects to both sides, and reports how it went.
func (r *replayCommand) replay(ctx context.Context, cmd *cobra.Command, cfg config.Config, pool *pgxpool.Pool,
	ask replay.Config, topic string, log *slog.Logger) error {
	if cfg.Retention.IDs > 0 || len(cfg.Retention.Handlers) > 0 {
		log.Warn("IDs are not kept for ever: messages whose IDs were forgotten are handled AGAIN; " +
			"--dry-run tells how many")
	}
	settings, err := cfg.Consumer(log)
	if err != nil {
		return err
	}
	reader, err := r.reader(settings)
	if err != nil {
		return err
	}
	defer reader.Close()
	var processor *handlers.Processor
	waiting := holds.New(log)
	err = dedup.Reach(ctx, waiting.Place(holds.StartKind, "postgres"), func() (err error) {
		processor, err = r.processor(ctx, cfg, pool, waiting, log)
		return err
	})
	if err != nil {
		return interrupted(ctx, err, "")
	}
	ask.Topic, _ = settings.Topic(topic)    // checked
	ask.Progress = func(at replay.Result) { // what earlier runs have done counts for no rate
		total := at.Total() - at.Before
		r.progress.Show(total-at.Left(), total, at.Elapsed)
	}
	if r.job && !r.dry {
		return r.makeJob(ctx, cmd, reader, processor, ask)
	}
	do := reader.Replay
	if r.dry {
		do = reader.Preview
	}
	result, err := do(ctx, processor, ask)
	r.progress.End()
	return r.report(ctx, cmd.OutOrStdout(), &result, err)
}

func (r *replayCommand) reader(s consumer.Config) (*replay.Reader, error) {
	boundMemory(s.BufferBytes)
	return replay.NewReader(replay.ReaderConfig{
		Connection: s.Connection, OnLoss: consumer.Policy(r.onLoss),
		MaxBatch: s.MaxBatch, MaxBatchBytes: s.MaxBatchBytes, Concurrency: s.Transactions, BufferBytes: s.BufferBytes,
		FetchWait: s.FetchWait, FetchBytes: s.FetchBytes,
		MetadataInterval: s.MetadataInterval, Logger: s.Logger,
	})
}

func (r *replayCommand) processor(ctx context.Context, cfg config.Config, pool *pgxpool.Pool, waiting *holds.Registry,
	log *slog.Logger) (*handlers.Processor, error) {
	open := dedup.Open
	if r.dry || r.job {
		open = dedup.Attach
	}
	store, err := open(ctx, pool, cfg.Store())
	if err != nil {
		return nil, err
	}
	return newProcessor(ctx, cfg, pool, store, waiting, log)
}

// interrupted tells an end by a signal from a failure; done is how far it came.
func interrupted(ctx context.Context, err error, done string) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return &codedError{exitInterrupted, fmt.Errorf("interrupted%s; the same command goes on", done)}
	case done != "":
		return fmt.Errorf("%w (%s; the same command goes on)", err, strings.TrimPrefix(done, ": "))
	}
	return err
}

// report prints what a replay did, and gives the program's end.
func (r *replayCommand) report(ctx context.Context, out io.Writer, result *replay.Result, err error) error {
	if result.Ranges == nil {
		return interrupted(ctx, err, "")
	}
	print := func() error { return printReplay(out, result, r.dry) }
	if r.json {
		print = func() error { return printJSON(out, view.ReplayOf(result, r.dry, err == nil)) }
	}
	if err := print(); err != nil {
		return err
	}
	if r.dry && err != nil {
		return fmt.Errorf("not read to the end: %w", err)
	}
	return interrupted(ctx, err, fmt.Sprintf(": %s of %s offsets are done",
		terminal.Grouped(result.Total()-result.Left()), terminal.Grouped(result.Total())))
}

func printReplay(out io.Writer, r *replay.Result, dry bool) error {
	_, _ = fmt.Fprintln(out, headline(r, dry))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	seconds := r.Elapsed.Seconds()
	_, _ = fmt.Fprintf(table, "read\t%s\tmessages, in %.1f s, %s/s\n", terminal.Grouped(r.Read), seconds,
		terminal.Grouped(terminal.PerSecond(r.Read, r.Elapsed)))
	for _, line := range []struct {
		name string
		n    int
		what string
	}{
		{"new", r.New, "handled"},
		{"duplicates", r.Duplicates, "seen before: no effect"},
		{"conflicts", r.Conflicts, "seen before with another content: see firstseen conflicts"},
		{"parked", r.Parked,
			"for firstseen run to handle: a handler failed, an earlier one of the key waits, or a webhook's"},
		{"dead", r.Dead, "in the dead letters now: see firstseen dead"},
		{"buried", r.Buried, "copies of dead letters: no effect"},
	} {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", line.name, terminal.Grouped(int64(line.n)),
			describe(line.name, line.what, dry))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(table, "\nPARTITION\tFROM\tTO\tNEXT")
	for _, p := range r.Ranges {
		_, _ = fmt.Fprintf(table, "%s/%d\t%d\t%d\t%d\n", r.Topic, p.Partition, p.From, p.To, p.Next)
	}
	return table.Flush()
}

// headline says how the replay went as a whole.
func headline(r *replay.Result, dry bool) string {
	text := "replay " + terminal.OneLine(r.Name)
	began := ", begun " + r.BegunAt.UTC().Format(time.DateTime) + " UTC"
	switch {
	case dry && r.Guessed:
		return text +
			": dry run, nothing was written; more IDs are new than can be remembered, so that new may be too high"
	case dry:
		return text + ": dry run, nothing was written"
	case r.Resumed && r.Left() == 0 && r.Before == r.Total():
		return text + began + ": was finished before; --fresh begins it anew"
	case r.Resumed:
		text += began + ": resumed with " + terminal.Grouped(r.Before) + " of " +
			terminal.Grouped(r.Total()) + " offsets done"
	}
	if r.Left() > 0 {
		return text + ": not finished"
	}
	return text + ": finished"
}

// describe words a count for a dry run.
func describe(name, what string, dry bool) string {
	switch {
	case !dry:
		return what
	case name == "new":
		return "would be handled"
	case name == "parked":
		return "is not foreseen"
	case name == "dead":
		return "have no usable ID, and would go to the dead letters"
	}
	return what
}
