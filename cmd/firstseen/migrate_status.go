package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/migrations"
)

// exitOtherVersion is status's code for a schema that is not the one that this build needs.
const exitOtherVersion = 3

func newMigrateStatus(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show which steps the schema has taken",
		Long: `Show each step and when it was applied. Nothing is changed.

Exit codes: 0 the schema is at the version that this build needs, 1 it can't be read, 2 wrong usage or config,
3 it is missing, or at an older or newer version.`,
		Example: "  firstseen migrate status --config firstseen.yaml || firstseen migrate up --config firstseen.yaml",
		Args:    noArgs,
		RunE:    t.migrator(status),
	}
}

func status(ctx context.Context, out io.Writer, dsn string, cfg migrations.Config) error {
	found, there, err := migrations.Version(ctx, dsn, cfg)
	if err != nil {
		return err
	}
	var steps []migrations.Step
	if there {
		if steps, err = migrations.Status(ctx, dsn, cfg); err != nil {
			return err
		}
	}
	if err := printStatus(out, steps); err != nil {
		return err
	}
	text, current := verdict(cfg.Schema, found)
	if !current {
		return &codedError{exitOtherVersion, errors.New(text)}
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

func printStatus(out io.Writer, steps []migrations.Step) error {
	if len(steps) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "VERSION\tSTEP\tAPPLIED")
	for _, s := range steps {
		applied := "pending"
		if !s.AppliedAt.IsZero() {
			applied = s.AppliedAt.UTC().Format(time.DateTime + " MST")
		}
		_, _ = fmt.Fprintf(table, "%d\t%s\t%s\n", s.Version, s.Name, applied)
	}
	return table.Flush()
}

func verdict(schema string, found int64) (text string, current bool) {
	need := migrations.Latest()
	switch {
	case found == 0:
		return fmt.Sprintf("schema %s is not there, and this build needs version %d: "+
			"run `firstseen migrate up`", schema, need), false
	case found < need:
		return fmt.Sprintf("schema %s is at version %d, and this build needs %d: run `firstseen migrate up`",
			schema, found, need), false
	case found > need:
		return fmt.Sprintf("schema %s is at version %d, newer than the %d that this build knows: run a newer build",
			schema, found, need), false
	}
	return fmt.Sprintf("schema %s is at version %d, which this build needs", schema, need), true
}
