package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/migrations"
)

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
			return usage(cmd, "--from %d is no version of the schema: the newest that this build knows is %d", from, newest)
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
	all, err := migrations.Print(cfg)
	if err != nil {
		return "", err
	}
	if from > 0 {
		all = after(from, all)
	}
	return "begin;\n\n" + all + "commit;\n", nil
}

type step struct {
	version int64
	sql     string
}

// after is the SQL of the steps above a version.
func after(version int64, all string) string {
	var b strings.Builder
	for _, s := range upSteps(all) {
		if s.version > version {
			b.WriteString(s.sql)
		}
	}
	return b.String()
}

var stepHeading = regexp.MustCompile(`(?m)^-- (\d+)_\w+\.sql$`)

// upSteps parts the SQL of all steps.
func upSteps(all string) (steps []step) {
	heads := stepHeading.FindAllStringSubmatchIndex(all, -1)
	for i, head := range heads {
		end := len(all)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		var version int64
		_, _ = fmt.Sscanf(all[head[2]:head[3]], "%d", &version)
		steps = append(steps, step{version, all[head[0]:end]})
	}
	return steps
}
