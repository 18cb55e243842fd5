package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
)

const configLong = `Look at the config of ` + "`firstseen run`" + `: what takes effect, and what there is to say.

  print     the config that takes effect, and where each value came from; no secret is shown
  schema    the JSON Schema of the file, for editors and checks
  example   a complete file: every key with its default, its unit and its comment

Nothing is connected to. ` + "`firstseen run --check`" + ` checks the config in the same way and prints one line.

Exit codes: 0 printed, 2 wrong usage, or a config with faults, all of which are listed.`

func newConfig() *cobra.Command {
	var file, shard string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the config that takes effect, its schema, or an example",
		Long:  configLong,
		Example: `  firstseen config example > firstseen.yaml
  firstseen config print --config firstseen.yaml
  firstseen config schema > firstseen.schema.json`,
	}
	cmd.PersistentFlags().StringVar(&file, "config", "",
		"config `file` (default $FIRSTSEEN_CONFIG, or firstseen.yaml if it is there)")
	cmd.PersistentFlags().StringVar(&shard, "shard", "", shardUsage)
	return parentOf(cmd, newConfigPrint(&file, &shard), newConfigSchema(), newConfigExample())
}

func newConfigPrint(file, shard *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the config that takes effect, and where each value came from",
		Long: `Print the config that takes effect: the file and the environment over the defaults, as YAML. Beside each value is where
it came from: file, with the ${NAME} that it holds; an environment variable; a secret's file; or default. A key without
a value has none.

Secrets are ***, and so is what follows the host in a webhook's URL. A text with ${NAME} is as it was written, for what
the environment holds may be secret.

Exit codes: 0 printed, 2 wrong usage, or a config with faults, all of which are listed.`,
		Example: `  firstseen config print --config firstseen.yaml
  firstseen config print --json | jq '.origins["batch.messages"]'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			effective, err := config.LoadEffective(*file, config.WithShard(os.Environ(), *shard))
			if err != nil {
				return err
			}
			text := effective.YAML()
			if asJSON {
				text = string(effective.JSON()) + "\n"
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: the file, the config, and the origins by key")
	return cmd
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the config file",
		Long: `Print the JSON Schema (2020-12) of the config file: the keys with their types, defaults and descriptions. An editor with
YAML support takes it from a first line

  # yaml-language-server: $schema=firstseen.schema.json

It sees the file alone; ` + "`firstseen run --check`" + ` sees more.

Exit codes: 0 printed, 1 it failed, 2 wrong usage.`,
		Example: "  firstseen config schema > firstseen.schema.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), config.Schema())
			return err
		},
	}
}

func newConfigExample() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a complete config file, with every key and its default",
		Long: `Print a complete config file: every key with its default, its unit and its comment. What is required has a sample to be
replaced; everything else may be taken out.

Exit codes: 0 printed, 1 it failed, 2 wrong usage.`,
		Example: "  firstseen config example > firstseen.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), config.Example())
			return err
		},
	}
}
