package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// walkCommands visits the commands that a user can see.
func walkCommands(cmd *cobra.Command, visit func(*cobra.Command)) {
	if cmd.Hidden {
		return
	}
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walkCommands(sub, visit)
	}
}

func TestEveryCommandSaysWhatItDoes(t *testing.T) {
	walkCommands(newRoot(), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		assert.NotEmpty(t, cmd.Short, path)
		assert.False(t, strings.HasSuffix(cmd.Short, "."), "%s: a short help is no sentence", path)
		assert.NotEmpty(t, cmd.Long+cmd.Example, "%s: neither a long help nor an example", path)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			assert.NotEmpty(t, f.Usage, "%s --%s has no usage text", path, f.Name)
		})
	})
}

func TestExamplesOfTheHelpAreRight(t *testing.T) {
	examples := 0
	walkCommands(newRoot(), func(cmd *cobra.Command) {
		for _, words := range commandLines(cmd.Example) {
			if args, ours := programArgs(words); ours {
				examples++
				assert.NoError(t, checkCommandLine(args), "%s: %q", cmd.CommandPath(), strings.Join(words, " "))
			}
		}
	})
	require.Greater(t, examples, 20)
}

func TestHelpListsExitCodes(t *testing.T) {
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{"--help"})
	require.NoError(t, root.Execute())
	_, codes, found := strings.Cut(out.String(), "Exit codes:")
	require.True(t, found, out.String())
	for _, code := range []int{exitOK, exitFailure, exitUsage} {
		require.Regexp(t, fmt.Sprintf(`(?m)^ +%d +\w`, code), codes)
	}
}
