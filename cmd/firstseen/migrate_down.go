package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/migrations"
)

// firstKept is the lowest version that still has message_dedup: its step makes the table, and taking it back drops
// all message IDs.
const firstKept = 1

const confirmation = "yes-i-lose-the-message-ids"

// firstAudit is the lowest version whose audit has entries that are of no message: pauses, resets, retention.
const firstAudit = 4

const auditConfirmation = "yes-i-lose-the-audit"

func newMigrateDown(t *target) *cobra.Command {
	var to int64
	var confirmed, withAudit bool
	cmd := &cobra.Command{
		Use:   "down --to VERSION",
		Short: "Take the schema back to an older version",
		Long: `Take the schema back to an older version, as before going back to an older build. Stop all consumers first.

Version 0 drops everything: the inbox, the positions and all message IDs ever seen, so that each message that is
delivered again takes effect again. That takes --` + confirmation + ` too.

Below version 4 the audit can't keep what was done to other than messages: pauses, resets of offsets, what retention deleted. Where
there are such entries that takes --` + auditConfirmation + ` too; save the table first.

Exit codes: 0 the schema is at that version, 1 it failed, 2 wrong usage or config.`,
		Example: "  firstseen migrate down --to 1 --config firstseen.yaml",
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("to"):
			return usage(cmd, "--to is required: the version to go back to")
		case to < 0:
			return usage(cmd, "--to %d: versions begin at 0", to)
		case to < firstKept && !confirmed:
			return usage(cmd,
				"version %d has no message_dedup: all message IDs ever seen would be lost, and messages that are "+
					"delivered again would take effect again; add --%s if that is meant", to, confirmation)
		}
		return t.migrator(func(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config) error {
			if !withAudit && !confirmed {
				if err := keepAudit(ctx, dsn, cfg.Schema, to); err != nil {
					return err
				}
			}
			return down(ctx, out, dsn, cfg, to)
		})(cmd, args)
	}
	cmd.Flags().Int64Var(&to, "to", 0, "`version` to go back to")
	cmd.Flags().BoolVar(&confirmed, confirmation, false, "go below the version that keeps the message IDs")
	cmd.Flags().BoolVar(&withAudit, auditConfirmation, false, "go below the version that keeps the whole audit")
	return cmd
}

// keepAudit refuses to go back where entries of the audit would be deleted.
func keepAudit(ctx context.Context, dsn, schema string, to int64) error {
	found, err := schemaVersion(ctx, dsn, schema)
	if err != nil || found == nil || *found < firstAudit || to >= firstAudit {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	table := pgx.Identifier{schema, "audit"}.Sanitize()
	var lost int
	if err := conn.QueryRow(ctx, `select count(*) from `+table+` where message_id is null`,
		pgx.QueryExecModeExec).Scan(&lost); err != nil {
		return fmt.Errorf("count the entries of the audit: %w", err)
	}
	if lost > 0 {
		return fmt.Errorf("version %d can't keep %d of the audit's entries, which are of no message: save them, "+
			"`psql -c '\\copy %s to audit.csv csv header'`, and add --%s", to, lost, table, auditConfirmation)
	}
	return nil
}

func down(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config, to int64) error {
	found, err := schemaVersion(ctx, dsn, cfg.Schema)
	switch {
	case err != nil:
		return err
	case found == nil || *found == 0:
		return fmt.Errorf("schema %s is not there: nothing to take back", cfg.Schema)
	case *found > migrations.Latest():
		return fmt.Errorf("schema %s is at version %d and this build knows %d: "+
			"take it back with the build that made it", cfg.Schema, *found, migrations.Latest())
	case *found <= to:
		return fmt.Errorf("schema %s is at version %d already: nothing to take back to %d", cfg.Schema, *found, to)
	}
	steps, err := migrations.Down(ctx, dsn, cfg, to)
	if err := printSteps(out, "taken back", steps); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "schema %s is at version %d\n", cfg.Schema, to)
	return err
}
