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

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/dedup"
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
	json  bool
}

func (i *inspected) addFlags(cmd *cobra.Command) {
	i.target.addFlags(cmd)
	flags := cmd.PersistentFlags()
	flags.StringVar(&i.inbox, "inbox", "",
		"`name` of the inbox (default: the config's inbox or group, or the only one there is)")
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
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "firstseen: warning: schema %s has seen no message for "+
		"the inbox %q; it has: %s\n", schema, inbox, terminal.OneLine(strings.Join(known, ", ")))
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
