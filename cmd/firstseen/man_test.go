package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestManualHasEveryCommandAndFlag(t *testing.T) {
	page, stderr, code := command(t, "man")
	require.Equal(t, exitOK, code, stderr)
	walkCommands(newRoot(), func(cmd *cobra.Command) {
		if !cmd.HasParent() {
			return
		}
		assert.Contains(t, page, `.SS "`+roff(cmd.UseLine())+`"`)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			assert.Contains(t, page, roff("--"+f.Name), cmd.CommandPath())
		})
	})
	lintManual(t, page)
}

func lintManual(t *testing.T, page string) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Log("not formatted: no groff here")
		return
	}
	format := exec.Command(groff, "-man", "-Tutf8", "-k", "-ww", "-z")
	format.Stdin = strings.NewReader(page)
	out, err := format.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}

func TestManualKeepsWhatRoffWouldTake(t *testing.T) {
	require.Equal(t, `a \-\-b \e \(dqc\(dq`, roff(`a --b \ "c"`))
	require.Equal(t, "\\&.firstseen\n\\&'x'\n  y", roff(".firstseen\n'x'\n  y\n"))
}

func TestEveryShellHasItsCompletions(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		script, stderr, code := command(t, "completion", shell)
		require.Equal(t, exitOK, code, stderr)
		require.Contains(t, script, "firstseen")
	}
	found, _, code := command(t, "__complete", "migrate", "r")
	require.Equal(t, exitOK, code)
	require.Contains(t, found, "roles\tMake the roles, and grant their rights\n")
}
