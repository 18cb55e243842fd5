package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/migrations"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print what this binary is",
		Long: `Print the module's version, the revision it was built from, Go's version, and the version of the schema that this
build needs in Postgres.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, revision := builtFrom()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "firstseen %s\nrevision  %s\ngo        %s %s/%s\nschema    %d\n",
				version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH, migrations.Latest())
			return err
		},
	}
}

// builtFrom is the module's version and the revision of the version control that it was built from.
func builtFrom() (version, revision string) {
	version, revision = "(devel)", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, revision
	}
	if info.Main.Version != "" {
		version = info.Main.Version
	}
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " (modified)"
		}
	}
	return version, revision + modified
}
