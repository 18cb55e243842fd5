package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/crashtest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

const crashtestLong = `Find out whether your SQL handlers, and webhooks, do each message once while everything around
them breaks: on a Postgres and a broker that it brings itself, with your config, your schema and a sample of your
messages. Nothing of yours is touched or called: the servers, logins, HTTP and outbox destinations of the config are
not used, and webhooks post to a receiver on loopback, without their secrets and headers.

It handles the sample twice without faults. That says what your tables should hold, and which columns no message
determines (sequences, clocks, random numbers): exclude those that may differ. Then it handles it again and again, each
time in a new database:

  copies        messages come twice, right behind each other or later
  order         partitions are mixed; messages of one key keep their order
  batches       of one message each
  failures      handlers fail now and then, before or after they have worked
  webhooks      the receiver answers late, not at all or with 429 or 500, or resets the connection, before or after it
                has taken the call; the consumer is killed before it gets the answer
  consumer      killed before a COMMIT arrives, after it and before its answer, or anywhere; stopped, replaced and let
                go on; rebalanced to a second member
  Postgres      crashes; ends sessions; a connection is cut before COMMIT, or the answer to it is lost
  all of that   together

After each run the tables must hold the same rows, in whatever order. If not, you see the rows, the message that each
seems to come from and the faults that met it. It ends there, unless --all is given; --seed and --run repeat that run.

The sample is a file with one JSON object a line:

  {"topic": "orders", "key": "c-17", "id": "o-1", "payload": {"order": 1, "cents": 250}}

  topic    where the config has several
  key      none where it is left out; all of a key come in the order of the file
  id       goes into the header message-id; headers is an object of others
  payload  the value, byte for byte as it stands there; or text, or base64; none of them is a tombstone

What a webhook sends is compared as a table is: each message under one Idempotency-Key, with one body, in the order of
its key, and no sooner than it is accepted. It may come again: that is promised at least once. Whether what is at the
URL takes the key into account shows only where a function of yours stands for it, as in

  create function billing.receive(key text, body jsonb) returns void ...

with --receiver notify=billing.receive. It is called for each call, in a transaction of its own; what it raises is a
500 or, with errcode 'PERMA', a 422. Its tables must hold the same rows each time.

Warnings name what needs no luck to find, like an unlogged table that is written to, or a function that uses dblink.

Exit codes:
  0    the same: every run left the same rows
  1    they differ, or a run was never done
  2    wrong usage, faults in the config, the schema or the sample, or servers that don't start`

// crashtestFlags are what the command is told.
type crashtestFlags struct {
	crashtest.Config
	config, messages, junit string
	schemas, receivers      []string
	asJSON                  bool
}

func newCrashtest() *cobra.Command {
	var o crashtestFlags
	cmd := &cobra.Command{
		Use:   "crashtest",
		Short: "Prove your handlers: kills, copies and crashes must leave the same rows",
		Long:  crashtestLong,
		Example: `  firstseen crashtest --config firstseen.yaml --schema schema.sql --messages sample.jsonl
  firstseen crashtest --schema schema.sql --messages sample.jsonl --kills 100 --exclude shop.orders.created_at
  firstseen crashtest --schema schema.sql --messages sample.jsonl --receiver notify=billing.receive
  firstseen crashtest --schema schema.sql --messages sample.jsonl --json --junit crashtest.xml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCrashtest(cmd, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "config `file` (default $FIRSTSEEN_CONFIG, or firstseen.yaml if it is there)")
	f.StringArrayVar(&o.schemas, "schema", nil,
		"`file` of SQL that makes your tables and functions; give it again for more")
	f.StringArrayVar(&o.receivers, "receiver", nil,
		"have a `webhook=function` of the schema stand for what it calls; give it again for more")
	f.StringVar(&o.messages, "messages", "", "`file` of messages, a JSON object a line")
	f.IntVar(&o.Faults, "kills", 30, "how many faults, over all runs")
	f.Uint64Var(&o.Seed, "seed", 0, "of the plan, to repeat it (default: by chance)")
	f.IntVar(&o.Only, "run", 0, "only the run with this `number`, beside those without faults (default: all)")
	f.BoolVar(&o.All, "all", false, "go on after a run that differs")
	f.StringArrayVar(&o.Tables, "table", nil, "compare this `schema.table`; give it again for more (default: all)")
	f.StringArrayVar(&o.Exclude, "exclude", nil, "don't compare this `schema.table.column`; give it again for more")
	f.BoolVar(&o.ExcludeDefaults, "exclude-defaults", false,
		"don't compare columns whose default is a sequence, the time or by chance")
	f.IntVar(&o.Partitions, "partitions", 4, "of each topic, where their order is mixed; 1: it never is")
	f.StringVar(&o.PostgresVersion, "postgres-version", "", "14 to 18 (default: the newest)")
	f.BoolVar(&o.asJSON, "json", false, "the result as JSON")
	f.StringVar(&o.junit, "junit", "", "write the result to this `file` too, as JUnit's XML")
	cmd.AddCommand(newCrashtestConsumer())
	return cmd
}

func runCrashtest(cmd *cobra.Command, o *crashtestFlags) error {
	if o.messages == "" {
		return usage(cmd, "--messages is missing: a file with a message a line")
	}
	if o.Faults < 1 || o.Partitions < 1 || o.Only < 0 {
		return usage(cmd, "--kills and --partitions are at least 1, and --run is a run's number")
	}
	if err := o.prepare(cmd); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	result, err := crashtest.Run(ctx, o.Config)
	if err != nil {
		return &codedError{exitUsage, fmt.Errorf("crashtest: %w", err)}
	}
	if err := o.write(cmd, result); err != nil {
		return &codedError{exitUsage, err}
	}
	if !result.Same {
		return errors.New("crashtest: what the handlers do is not the same each time")
	}
	return nil
}

// prepare reads the files, and has this program be the consumer.
func (o *crashtestFlags) prepare(cmd *cobra.Command) error {
	o.Tell = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), terminal.Visible(line)) }
	cfg, err := config.LoadScratch(o.config, os.Environ(), nowhere)
	if err != nil {
		return err
	}
	if err := o.webhooks(cfg.Webhooks()); err != nil {
		return usage(cmd, "%v", err)
	}
	o.FirstseenSchema = cfg.Postgres.Schema
	if err := o.read(cfg); err != nil {
		return &codedError{exitUsage, err}
	}
	args := []string{"crashtest", "consumer"}
	if o.config != "" {
		args = append(args, "--config", o.config)
	}
	o.Command, err = crashtest.OfThisProgram(args...)
	return err
}

// webhooks has handlers be tried that are webhooks, each with the function that stands for what it calls.
func (o *crashtestFlags) webhooks(list []config.Handler) error {
	functions := map[string]string{}
	for _, text := range o.receivers {
		name, function, _ := strings.Cut(text, "=")
		named := slices.ContainsFunc(list, func(h config.Handler) bool { return h.Name == name })
		if function == "" || !named {
			return fmt.Errorf("--receiver %s: write webhook=schema.function, with a webhook of the config", text)
		}
		functions[name] = function
	}
	for _, h := range list {
		o.Webhooks = append(o.Webhooks, crashtest.Webhook{Handler: h.Name, Ordering: dedup.Ordering(h.Ordering),
			Receiver: functions[h.Name]})
	}
	return nil
}

// nowhere stands for the servers while there are none yet.
var nowhere = config.Scratch{DSN: "postgres://localhost", Brokers: []string{"localhost:9092"},
	Webhook: crashtest.Member{Receiver: "http://127.0.0.1"}.Webhook, WebhookTimeout: crashtest.WebhookTimeout}

// read reads the schema and the sample, whose topics must be in the config.
func (o *crashtestFlags) read(cfg config.Config) error {
	for _, name := range o.schemas {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		o.Schema += string(text) + "\n"
	}
	file, err := os.Open(o.messages)
	if err != nil {
		return err
	}
	defer file.Close()
	only := ""
	if len(cfg.Topics) == 1 {
		only = cfg.Topics[0].Name
	}
	if o.Messages, err = crashtest.ReadMessages(file, only); err != nil {
		return fmt.Errorf("%s: %w", o.messages, err)
	}
	for i := range o.Messages {
		topic := o.Messages[i].Topic
		t, is := cfg.TopicOf(topic)
		if !is {
			return fmt.Errorf("%s: message %d is of topic %s, which has no handler in the config", o.messages, i+1, topic)
		}
		if slices.Contains(t.ID, "position") && !slices.Contains(o.Positions, topic) {
			o.Positions = append(o.Positions, topic)
		}
	}
	return nil
}

func (o *crashtestFlags) write(cmd *cobra.Command, result *crashtest.Result) error {
	if o.junit != "" {
		if err := writeFile(o.junit, result); err != nil {
			return fmt.Errorf("write %s: %w", o.junit, err)
		}
	}
	text := terminal.Visible(result.Text(func(seed uint64, run int) string {
		return fmt.Sprintf("%s --seed %d --run %d", repeatLine(cmd), seed, run)
	}))
	if o.asJSON {
		document, err := result.JSON()
		if err != nil {
			return err
		}
		text = string(document)
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}

func writeFile(name string, result *crashtest.Result) (err error) {
	file, err := os.Create(filepath.Clean(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return result.WriteJUnit(file)
}

// repeatLine is the command line, but for what names the run.
func repeatLine(cmd *cobra.Command) string {
	line := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch list, isList := f.Value.(pflag.SliceValue); {
		case slices.Contains([]string{"seed", "run", "json", "junit", "all"}, f.Name):
		case isList:
			for _, one := range list.GetSlice() {
				line = append(line, "--"+f.Name, one)
			}
		case f.Value.Type() == "bool":
			line = append(line, "--"+f.Name+"="+f.Value.String())
		default:
			line = append(line, "--"+f.Name, f.Value.String())
		}
	})
	return strings.Join(line, " ")
}

// newCrashtestConsumer is the process that is there to be killed.
func newCrashtestConsumer() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:    "consumer",
		Short:  "The consumer of a running `crashtest`, which starts it",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			m, is, err := crashtest.Here()
			if !is {
				return usage(cmd, "only `firstseen crashtest` starts it")
			}
			if err != nil {
				return err
			}
			return consumeOn(ctx, m, file)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "config `file`")
	return cmd
}

const (
	// lanePoll has parked messages be tried again soon.
	lanePoll = 20 * time.Millisecond
	// abandonAfter has what a killed process was at be free soon.
	abandonAfter = time.Second
)

// consumeOn consumes as run does, but for what is around it, on the servers of a crash test.
func consumeOn(ctx context.Context, m crashtest.Member, file string) error {
	cfg, err := config.LoadScratch(file, os.Environ(), config.Scratch{
		DSN: config.Secret(m.DSN), Brokers: m.Brokers, ClientID: m.ClientID, Batch: m.Batch,
		Webhook: m.Webhook, WebhookTimeout: crashtest.WebhookTimeout})
	if err != nil {
		return err
	}
	live := config.Fixed(cfg)
	log := slog.New(live.Logger(os.Stderr).Handler())
	s := &process{live: live, log: log, waiting: holds.New(log)}
	if s.pool, err = openPool(ctx, cfg, nil); err != nil {
		return err
	}
	defer dedup.ClosePool(s.pool)
	processor, err := s.openFailing(ctx, m)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if s.settings, err = cfg.Consumer(log); err != nil {
		return err
	}
	return consumer.Run(ctx, s.settings, processor)
}

// openFailing is open with handlers that fail where a crash test wants it.
func (s *process) openFailing(ctx context.Context, m crashtest.Member) (processor *handlers.Processor, err error) {
	err = s.reach(ctx, func(cfg config.Config) error {
		store, err := dedup.Open(ctx, s.pool, cfg.Store())
		if err != nil {
			return err
		}
		registry, err := registryOf(ctx, cfg, s.pool, m.Failing)
		if err != nil {
			return err
		}
		processor, err = handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry,
			HandlerTimeout: cfg.Timeouts.Handler, AbandonAfter: abandonAfter, LanePoll: lanePoll, Holds: s.waiting,
			Logger: s.log})
		return err
	})
	return processor, err
}
