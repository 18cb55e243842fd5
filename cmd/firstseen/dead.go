package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/argtext"
	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

const deadLong = `Look at dead letters, and redrive or discard them. A dead letter is a message that was given up: its handler failed on
it as often as it may, or for good, or it came without a usable ID. It is kept byte for byte until someone decides.

  list      newest first, with what they died of
  show      one message whole: headers, key, value, error
  redrive   give messages back to their handlers, whose process has to run; each is handled once
  discard   forget messages for good; their IDs stay seen, so that a copy is a duplicate

An --id is what the producer wrote (a UUID in any spelling, or any other text) or the UUID that list shows.` + databaseHelp

const databaseHelp = `

The database is --dsn, or what the config of ` + "`firstseen run`" + ` says: --config, the file that FIRSTSEEN_CONFIG names,
./firstseen.yaml, and FIRSTSEEN_POSTGRES_DSN in the environment. The role firstseen_operator is enough. Neither Kafka
nor a running firstseen is needed.`

// inspected is the inbox that the commands for operators work on.
type inspected struct {
	target
	inbox string
	json  bool
}

func (i *inspected) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&i.file, "config", "", "config `file` (default $FIRSTSEEN_CONFIG, or firstseen.yaml if it is there)")
	flags.StringVar(&i.dsn, "dsn", "", "connection `string`, instead of the config's")
	flags.StringVar(&i.schema, "schema", "",
		"`name` of the schema, instead of the config's (default "+migrations.DefaultSchema+")")
	flags.StringVar(&i.inbox, "inbox", "", "`name` of the inbox (default: the config's inbox or group, or the only one there is)")
	flags.BoolVar(&i.json, "json", false, "print JSON")
}

// withStore runs do on the inbox, until it is done or a signal comes.
func (i *inspected) withStore(cmd *cobra.Command, do func(ctx context.Context, s *operate.Inbox) error) error {
	dsn, cfg, err := i.load(true)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	conf, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	dial.Prepare(&conf.ConnConfig.Config, 0)
	conf.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return err
	}
	defer closePool(pool)
	inbox, err := i.pickInbox(ctx, cmd, pool, cfg.Schema)
	if err != nil {
		return err
	}
	store, err := operate.Open(ctx, pool, dedup.Config{Inbox: inbox, Schema: cfg.Schema})
	if err != nil {
		return err
	}
	return do(ctx, store)
}

func (i *inspected) pickInbox(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool,
	schema string) (string, error) {
	if i.inbox != "" {
		return i.inbox, warnOfUnknownInbox(ctx, cmd, pool, schema, i.inbox)
	}
	if i.dsn == "" || i.file != "" {
		c, _ := config.Load(i.file, os.Environ()) // other sections may have faults: they don't matter here
		if name := cmp.Or(c.Inbox, c.Group); name != "" {
			return name, nil
		}
	}
	inboxes, err := dedup.Inboxes(ctx, pool, schema)
	switch {
	case err != nil:
		return "", err
	case len(inboxes) == 1:
		return inboxes[0], nil
	case len(inboxes) == 0:
		return "", fmt.Errorf("schema %s has seen no message yet", schema)
	}
	return "", usage(cmd, "--inbox is required, one of: %s", strings.Join(inboxes, ", "))
}

// warnOfUnknownInbox says on standard error that the inbox has seen nothing. It may be a slip, or come later.
func warnOfUnknownInbox(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, schema, inbox string) error {
	known, err := dedup.Inboxes(ctx, pool, schema)
	if err != nil || slices.Contains(known, inbox) {
		return err
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "firstseen: warning: schema %s has seen no message for the inbox %q; it has: %s\n", schema, inbox, terminal.OneLine(strings.Join(known, ", ")))
	return err
}

func newDead() *cobra.Command {
	i := &inspected{}
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at dead letters, redrive and discard them",
		Long:  deadLong,
		Example: `  firstseen dead list --since 2h
  firstseen dead show 1b4e28ba-2fa1-11d2-883f-0016d3cca427
  firstseen dead redrive --topic orders --reason attempts_exhausted --why "ledger is back, incident 482"`,
		Args: onlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	i.addFlags(cmd)
	cmd.AddCommand(newDeadList(i), newDeadShow(i), newDeadRedrive(i), newDeadDiscard(i))
	return cmd
}

// filterFlags are a operate.Filter on the command line.
type filterFlags struct {
	filter       operate.Filter
	key          string
	since, until string
	ids          []string
}

func (f *filterFlags) addFlags(cmd *cobra.Command, withReason bool) {
	flags := cmd.Flags()
	flags.StringVar(&f.filter.Topic, "topic", "", "`name` of the topic")
	flags.StringVar(&f.filter.Handler, "handler", "", "`name` of the handler")
	flags.StringVar(&f.filter.Tenant, "tenant", "", "`name` of the tenant")
	if withReason {
		flags.StringVar(&f.filter.Reason, "reason", "", "`code` of the failure, as list shows it")
	}
	flags.StringVar(&f.key, "key", "", `message key, as text, or \x and hex digits`)
	flags.StringVar(&f.since, "since", "", "not before this `time`: 2h (before now), 2026-03-01, or 2026-03-01T04:05:06Z")
	flags.StringVar(&f.until, "until", "", "before this `time`")
	flags.StringArrayVar(&f.ids, "id", nil, "message `ID`; may be given again")
}

// read gives the filter, and whether it narrows anything.
func (f *filterFlags) read(cmd *cobra.Command) (filter operate.Filter, narrow bool, err error) {
	for _, name := range []string{"topic", "handler", "tenant", "reason", "key", "since", "until", "id"} {
		narrow = narrow || cmd.Flags().Changed(name)
	}
	filter = f.filter
	if cmd.Flags().Changed("key") {
		if filter.Key, err = argtext.Key(f.key); err != nil {
			return filter, narrow, usage(cmd, "--key: %v", err)
		}
	}
	if filter.From, err = parseTime(f.since, time.Now()); err != nil {
		return filter, narrow, usage(cmd, "--since: %v", err)
	}
	if filter.To, err = parseTime(f.until, time.Now()); err != nil {
		return filter, narrow, usage(cmd, "--until: %v", err)
	}
	filter.IDs, err = parseIDs(cmd, f.ids)
	return filter, narrow, err
}

func parseIDs(cmd *cobra.Command, given []string) (ids []uuid.UUID, err error) {
	for _, text := range given {
		found, err := identity.ParseIDs(text)
		if err != nil {
			return nil, usage(cmd, "%v", err)
		}
		ids = append(ids, found...)
	}
	return ids, nil
}

// parseTime reads a time, or a duration before now. Times without a zone are UTC, as they are printed.
func parseTime(text string, now time.Time) (time.Time, error) { return argtext.Time(text, now) }
