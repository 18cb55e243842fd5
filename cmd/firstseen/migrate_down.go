package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/migrations"
)

// firstKept is the lowest version that still has message_dedup: its step makes the table, and taking it back drops
// all message IDs.
const firstKept = 1

const confirmation = "yes-i-lose-the-message-ids"

func newMigrateDown(t *target) *cobra.Command {
	var to int64
	var confirmed bool
	cmd := &cobra.Command{
		Use:   "down --to VERSION",
		Short: "Take the schema back to an older version",
		Long: `Take the schema back to an older version, as before going back to an older build. Stop all consumers first.

Version 0 drops everything: the inbox, the positions and all message IDs ever seen, so that each message that is
delivered again takes effect again. That takes --` + confirmation + ` too.

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
			return usage(cmd, "version %d has no message_dedup: all message IDs ever seen would be lost, and messages that are delivered "+
				"again would take effect again; add --%s if that is meant", to, confirmation)
		}
		return t.migrator(func(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config) error {
			return down(ctx, out, dsn, cfg, to)
		})(cmd, args)
	}
	cmd.Flags().Int64Var(&to, "to", 0, "`version` to go back to")
	cmd.Flags().BoolVar(&confirmed, confirmation, false, "go below the version that keeps the message IDs")
	return cmd
}

func down(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config, to int64) error {
	found, err := schemaVersion(ctx, dsn, cfg.Schema)
	switch {
	case err != nil:
		return err
	case found == nil || *found == 0:
		return fmt.Errorf("schema %s is not there: nothing to take back", cfg.Schema)
	case *found > migrations.Latest():
		return fmt.Errorf("schema %s is at version %d and this build knows %d: take it back with the build that made it",
			cfg.Schema, *found, migrations.Latest())
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
