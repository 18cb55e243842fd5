package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
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
	shard             string
}

func newMigrate() *cobra.Command {
	t := &target{}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make, change or look at the schema in Postgres",
		Long:  migrateLong,
		Example: `  firstseen migrate up --config firstseen.yaml
  firstseen migrate status --dsn postgres://app@localhost/app
  firstseen migrate roles --config firstseen.yaml`,
	}
	t.addFlags(cmd)
	return parentOf(cmd, newMigrateUp(t), newMigrateRoles(t), newMigrateStatus(t), newMigrateDown(t),
		newMigratePrint(t))
}

func (t *target) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&t.file, "config", "",
		"config `file` (default $FIRSTSEEN_CONFIG, or firstseen.yaml if it is there)")
	flags.StringVar(&t.dsn, "dsn", "", "connection `string`, instead of the config's")
	flags.StringVar(&t.schema, "schema", "",
		"`name` of the schema, instead of the config's (default "+migrations.DefaultSchema+")")
	flags.StringVar(&t.shard, "shard", "", shardUsage)
}

// load gives the database to migrate.
func (t *target) load(withDSN bool) (dsn string, cfg migrations.Config, err error) {
	override := config.Postgres{DSN: config.Secret(t.dsn), Schema: t.schema}
	p, err := config.LoadPostgres(t.file, t.environ(), override, withDSN)
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
	var roles bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the schema to the version that this build needs",
		Long: `Bring the schema to the version that this build needs, and make it where it is missing. Steps that were taken are
left alone. Each step is one transaction. With --roles go on as ` + "`migrate roles`" + ` does.

Where the config has postgres.shards that is done in each of them, and then each is told which one it is, which it remembers. To
change which partitions are at home where, change the config and run this again, for all shards: it is refused where a
partition would lose its home, and then nothing has changed.

Exit codes: 0 the schema is at that version, 1 a step failed, 2 wrong usage or config.`,
		Example: `  firstseen migrate up --config firstseen.yaml
  firstseen migrate up --roles --config firstseen.yaml`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dsns := map[string]string{}
		run := t.migrator(func(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config) error {
			dsns[t.shardNamed()] = dsn
			if err := up(ctx, out, dsn, cfg); err != nil || !roles {
				return err
			}
			return applyRoles(ctx, out, dsn, cfg)
		})
		if err := t.overShards(cmd, false, func() error { return run(cmd, args) }); err != nil {
			return err
		}
		return t.declare(cmd, dsns)
	}
	cmd.Flags().BoolVar(&roles, "roles", false, "then make the roles and grant their rights")
	return cmd
}

// shardNamed is the shard that the database is; empty where there are none.
func (t *target) shardNamed() string {
	if t.dsn != "" {
		return ""
	}
	return cmp.Or(t.shard, t.config().Postgres.Shard)
}

// declare has the databases remember which shards they are.
func (t *target) declare(cmd *cobra.Command, dsns map[string]string) error {
	cfg := t.config()
	if _, alone := dsns[""]; alone || len(cfg.Postgres.Shards) == 0 {
		return nil
	}
	if cfg.Group == "" {
		return usage(cmd, "config: group is required: its shards are to be declared")
	}
	if err := declareHomes(cmd.Context(), cfg.Postgres, cfg.Group, dsns); err != nil {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "the shards of %s are declared: %s\n", cfg.Group, cfg.Postgres.Map())
	return err
}

func up(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config) error {
	steps, err := migrations.Up(ctx, dsn, cfg)
	if err := printSteps(out, "applied", steps); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "schema %s is at version %d\n", cfg.Schema, migrations.Latest())
	return err
}

func newMigrateRoles(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "roles",
		Short: "Make the roles, and grant their rights",
		Long: `Make the roles firstseen_owner, firstseen_consumer, firstseen_operator, firstseen_retention and firstseen_sender where they are
missing, give the schema to firstseen_owner, and grant each what it may, in one transaction. Run it after each
migration; it may be repeated. What the roles are for is at the top of what ` + "`migrate print --roles`" + ` prints.

The first time it takes a login that owns the schema and may create roles, or a superuser. Later a member of
firstseen_owner will do, until a version brings another role.

Exit codes: 0 the roles have their rights, 1 it failed and nothing has changed, 2 wrong usage or config.`,
		Example: `  firstseen migrate roles --config firstseen.yaml
  psql --command 'create role billing login in role firstseen_consumer' app`,
		Args: noArgs,
		RunE: t.migrator(applyRoles),
	}
}

func applyRoles(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config) error {
	made, err := migrations.ApplyRoles(ctx, dsn, cfg)
	if err != nil {
		return err
	}
	for _, role := range made {
		if _, err := fmt.Fprintf(out, "made role %s\n", role); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "the roles have their rights in schema %s\n", cfg.Schema)
	return err
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
		Short: "Print the SQL that `up` and `roles` run, to read or to apply by other means",
		Long: `Print the SQL that ` + "`up`" + ` would run on an empty database: one transaction, with its entries in the table of
versions, so that ` + "`up` and `run`" + ` find the schema that it made. With --from only the steps above that version.
With --roles print what ` + "`roles`" + ` runs. Nothing is connected to.

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
