package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/migrations"
)

// firstKept is the lowest version that still has message_dedup: its step makes the table, and taking it back drops
// all message IDs.
const firstKept = 1

// firstAudit is the lowest version whose audit has entries that are of no message: pauses, resets, retention.
const firstAudit = 4

func newMigrateDown(t *target) *cobra.Command {
	var to int64
	var confirm confirmation
	cmd := &cobra.Command{
		Use:   "down --to VERSION",
		Short: "Take the schema back to an older version",
		Long: `Take the schema back to an older version, as before going back to an older build. Stop all consumers first.

Version 0 drops everything: the inbox, the positions and all message IDs ever seen, so that each message that is
delivered again takes effect again. Below version 4 the audit can't keep what was done to other than messages: pauses,
resets of offsets, what retention deleted; save the table first. Both ask, the second where there are such entries: give
--yes, or type at a terminal how many are lost.

Exit codes: 0 the schema is at that version, 1 it failed, 2 wrong usage or config, or not confirmed.`,
		Example: "  firstseen migrate down --to 1 --config firstseen.yaml",
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("to"):
			return usage(cmd, "--to is required: the version to go back to")
		case to < 0:
			return usage(cmd, "--to %d: versions begin at 0", to)
		}
		return t.migrator(func(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config) error {
			if err := confirmDown(ctx, cmd, dsn, cfg, to, &confirm); err != nil {
				return err
			}
			return down(ctx, out, dsn, cfg, to)
		})(cmd, args)
	}
	cmd.Flags().Int64Var(&to, "to", 0, "`version` to go back to")
	confirm.addFlag(cmd)
	return cmd
}

// confirmDown asks before message IDs, or entries of the audit, are lost.
func confirmDown(ctx context.Context, cmd *cobra.Command, dsn string, cfg migrations.Config, to int64,
	asks *confirmation) error {
	found, _, err := migrations.Version(ctx, dsn, cfg)
	if err != nil || found <= to || asks.yes {
		return err
	}
	table := func(name string) string { return pgx.Identifier{cfg.Schema, name}.Sanitize() }
	switch {
	case to < firstKept:
		n, err := countRows(ctx, dsn, table("message_dedup"))
		if err != nil {
			return err
		}
		return asks.ask(cmd, n, terminal.Grouped(n)+" message IDs, all that were ever seen, would be lost, and "+
			"messages that are delivered again take effect again")
	case found >= firstAudit && to < firstAudit:
		n, err := countRows(ctx, dsn, table("audit")+` where message_id is null`)
		if err != nil || n == 0 {
			return err
		}
		return asks.ask(cmd, n, fmt.Sprintf("version %d can't keep %d of the audit's entries, which are of no message; "+
			"`psql -c '\\copy %s to audit.csv csv header'` saves them", to, n, table("audit")))
	}
	return nil
}

func countRows(ctx context.Context, dsn, from string) (n int64, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := conn.QueryRow(ctx, `select count(*) from `+from, pgx.QueryExecModeExec).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what is lost: %w", err)
	}
	return n, nil
}

func down(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config, to int64) error {
	found, _, err := migrations.Version(ctx, dsn, cfg)
	switch {
	case err != nil:
		return err
	case found == 0:
		return fmt.Errorf("schema %s is not there: nothing to take back", cfg.Schema)
	case found > migrations.Latest():
		return fmt.Errorf("schema %s is at version %d and this build knows %d: "+
			"take it back with the build that made it", cfg.Schema, found, migrations.Latest())
	case found <= to:
		return fmt.Errorf("schema %s is at version %d already: nothing to take back to %d", cfg.Schema, found, to)
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
