package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/migrations"
)

const migrateLong = `Make, change or look at firstseen's schema in Postgres.

The database is --dsn, or what the config of ` + "`firstseen run`" + ` says: --config, the file that FIRSTSEEN_CONFIG names,
./firstseen.yaml, and FIRSTSEEN_POSTGRES_DSN in the environment, where other users of the machine can't read it as
they can a command line. Only the config's postgres section has to be complete.

Migrations hold a session's lock, so any number of processes may run them at once: point them at Postgres itself and
not at a pooler in transaction mode, as a role that owns the schema.

Exit codes: 0 done, 1 it failed, 2 wrong usage or config; status also gives 3.`

// target is the database of the migrate subcommands.
type target struct {
	file, dsn, schema string
}

func newMigrate() *cobra.Command {
	t := &target{}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make, change or look at the schema in Postgres",
		Long:  migrateLong,
		Example: `  firstseen migrate up --config firstseen.yaml
  firstseen migrate status --dsn postgres://app@localhost/app
  firstseen migrate print --roles | psql app`,
		Args: onlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	t.addFlags(cmd)
	cmd.AddCommand(newMigrateUp(t), newMigrateStatus(t), newMigrateDown(t), newMigratePrint(t))
	return cmd
}

func (t *target) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&t.file, "config", "",
		"config `file` (default $FIRSTSEEN_CONFIG, or firstseen.yaml if it is there)")
	flags.StringVar(&t.dsn, "dsn", "", "connection `string`, instead of the config's")
	flags.StringVar(&t.schema, "schema", "",
		"`name` of the schema, instead of the config's (default "+migrations.DefaultSchema+")")
}

// load gives the database to migrate.
func (t *target) load(withDSN bool) (dsn string, cfg migrations.Config, err error) {
	override := config.Postgres{DSN: config.Secret(t.dsn), Schema: t.schema}
	p, err := config.LoadPostgres(t.file, os.Environ(), override, withDSN)
	if p.Schema == "" {
		p.Schema = migrations.DefaultSchema
	}
	return p.DSN.Reveal(), migrations.Config{Schema: p.Schema}, err
}

// migrator is a subcommand that works on the database, until it is done or a signal comes.
func (t *target) migrator(do func(ctx context.Context, out io.Writer, dsn string,
	cfg migrations.Config) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		dsn, cfg, err := t.load(true)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return do(ctx, cmd.OutOrStdout(), dsn, cfg)
	}
}

func newMigrateUp(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Bring the schema to the version that this build needs",
		Long: `Bring the schema to the version that this build needs, and make it where it is missing. Steps that were taken are
left alone. Each step is one transaction.

Exit codes: 0 the schema is at that version, 1 a step failed, 2 wrong usage or config.`,
		Example: "  firstseen migrate up --config firstseen.yaml",
		Args:    noArgs,
		RunE: t.migrator(func(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config) error {
			steps, err := migrations.Up(ctx, dsn, cfg)
			if err := printSteps(out, "applied", steps); err != nil {
				return err
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "schema %s is at version %d\n", cfg.Schema, migrations.Latest())
			return err
		}),
	}
}

func printSteps(out io.Writer, what string, steps []migrations.Step) error {
	for _, s := range steps {
		if _, err := fmt.Fprintf(out, "%s %s\n", what, s.Name); err != nil {
			return err
		}
	}
	return nil
}

func newMigratePrint(t *target) *cobra.Command {
	var roles bool
	var from int64
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL that `up` runs, to read or to apply by other means",
		Long: `Print the SQL that ` + "`up`" + ` would run on an empty database: one transaction, with its entries in the table of
versions, so that ` + "`up` and `run`" + ` find the schema that it made. With --from only the steps above that version.
With --roles print the script that makes the roles firstseen_owner, firstseen_consumer, firstseen_operator and firstseen_retention and grants
their rights; run it after each migration. Nothing is connected to.

Exit codes: 0 printed, 1 it failed, 2 wrong usage or config.`,
		Example: `  firstseen migrate print | psql --set ON_ERROR_STOP=1 app
  firstseen migrate print --roles | psql --set ON_ERROR_STOP=1 app`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if newest := migrations.Latest(); from < 0 || from > newest {
			return usage(cmd,
				"--from %d is no version of the schema: the newest that this build knows is %d", from, newest)
		}
		_, cfg, err := t.load(false)
		if err != nil {
			return err
		}
		sql, err := printed(cfg, roles, from)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), sql)
		return err
	}
	cmd.Flags().BoolVar(&roles, "roles", false, "print the script for the roles instead")
	cmd.Flags().Int64Var(&from, "from", 0, "`version` that the schema has already")
	return cmd
}

func printed(cfg migrations.Config, roles bool, from int64) (string, error) {
	if roles {
		return migrations.Roles(cfg)
	}
	steps, err := migrations.PrintFrom(cfg, from)
	return "begin;\n\n" + steps + "commit;\n", err
}
