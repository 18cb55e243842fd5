package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/migrations/dial"
)

const databaseHelp = `

The database is --dsn, or what the config of ` + "`firstseen run`" + ` says: --config, the file that FIRSTSEEN_CONFIG names,
./firstseen.yaml, and FIRSTSEEN_POSTGRES_DSN in the environment. The role firstseen_operator is enough. Neither Kafka
nor a running firstseen is needed.`

// inspected is the inbox that the commands for operators work on.
type inspected struct {
	target
	inbox string
	// outbox says that it is the outbox's, and no other.
	outbox bool
	json   bool
	// anyInbox says that it does not matter which one it is, nor that there is one.
	anyInbox bool
}

func (i *inspected) addFlags(cmd *cobra.Command) {
	i.target.addFlags(cmd)
	flags := cmd.PersistentFlags()
	if !i.outbox {
		flags.StringVar(&i.inbox, "inbox", "",
			"`name` of the inbox (default: the config's inbox or group, or the only one there is)")
	}
	flags.BoolVar(&i.json, "json", false, "print JSON")
}

// handlerFlag is the flag that names a handler, which of the outbox is a destination.
func (i *inspected) handlerFlag() string {
	if i.outbox {
		return "destination"
	}
	return "handler"
}

// withStore runs do on the inbox, until it is done or a signal comes.
func (i *inspected) withStore(cmd *cobra.Command, do func(ctx context.Context, s *operate.Inbox) error) error {
	return i.withPool(cmd, 2, func(ctx context.Context, _ *pgxpool.Pool, s *operate.Inbox) error { return do(ctx, s) })
}

// withPool is withStore for who needs the pool, too, of so many connections.
func (i *inspected) withPool(cmd *cobra.Command, connections int32,
	do func(ctx context.Context, pool *pgxpool.Pool, s *operate.Inbox) error) error {
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
	conf.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return err
	}
	defer dedup.ClosePool(pool)
	inbox, err := i.pickInbox(ctx, cmd, pool, cfg.Schema)
	if err != nil {
		return dial.Advise(err)
	}
	store, err := operate.Open(ctx, pool, dedup.Config{Inbox: inbox, Schema: cfg.Schema})
	if err == nil {
		err = do(ctx, pool, store)
	}
	return sayRole(err, conf.ConnConfig.User)
}

// sayRole adds to an error which role the login lacks, where Postgres has denied it something.
func sayRole(err error, login string) error {
	if !failure.Denied(err) {
		return err
	}
	return fmt.Errorf("this takes the role firstseen_operator, which the login %s does not have: `grant "+
		"firstseen_operator to %s`, or give another login by --dsn: %w", login, pgx.Identifier{login}.Sanitize(), err)
}

func (i *inspected) pickInbox(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool,
	schema string) (string, error) {
	if i.outbox {
		return dedup.OutboxInbox, nil
	}
	if i.inbox != "" {
		return i.inbox, warnOfUnknownInbox(ctx, cmd, pool, schema, i.inbox)
	}
	c := i.config()
	if name := cmp.Or(c.Inbox, c.Group); name != "" {
		return name, nil
	}
	inboxes, err := consumersInboxes(ctx, pool, schema)
	switch {
	case err != nil:
		return "", err
	case len(inboxes) == 1, i.anyInbox && len(inboxes) > 0:
		return inboxes[0], nil
	case i.anyInbox:
		return "none", nil
	case len(inboxes) == 0:
		return "", fmt.Errorf("schema %s has seen no message yet", schema)
	}
	return "", usage(cmd, "--inbox is required, one of: %s", strings.Join(inboxes, ", "))
}

// config is that of `firstseen run`, as far as there is one; a connection string alone is none. Its faults don't
// matter.
func (t *target) config() (c config.Config) {
	if t.dsn == "" || t.file != "" {
		c, _ = config.Load(t.file, t.environ())
	}
	return c
}

// consumersInboxes are all but the outbox's, which has commands of its own, where there are others.
func consumersInboxes(ctx context.Context, pool *pgxpool.Pool, schema string) ([]string, error) {
	inboxes, err := dedup.Inboxes(ctx, pool, schema)
	if at := slices.Index(inboxes, dedup.OutboxInbox); at >= 0 && len(inboxes) > 1 {
		inboxes = slices.Delete(inboxes, at, at+1)
	}
	return inboxes, err
}

// warnOfUnknownInbox says on standard error that the inbox has seen nothing. It may be a slip, or come later.
func warnOfUnknownInbox(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, schema, inbox string) error {
	known, err := dedup.Inboxes(ctx, pool, schema)
	if err != nil || slices.Contains(known, inbox) {
		return err
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "firstseen: warning: schema %s has seen no message for "+
		"the inbox %q; it has: %s\n", schema, inbox, terminal.OneLine(cmp.Or(strings.Join(known, ", "), "none")))
	return err
}

func printJSON(out io.Writer, v any) error {
	text, err := httpjson.Marshal(v, "  ")
	if err == nil {
		_, err = out.Write(text)
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
