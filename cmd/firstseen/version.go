package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/migrations"
)

// releaseVersion is the version where a release is built, -ldflags "-X main.releaseVersion=v1.2.3". Where it is empty
// the version is that of the module, or what the version control's tags make of the revision.
var releaseVersion string

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print what this binary is",
		Long: `Print the version, the revision it was built from, Go's version, and the version of the schema that this
build needs in Postgres. A build between two versions is named after the one that it leads to and its own revision.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, revision := builtFrom()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "firstseen %s\nrevision  %s\ngo        %s %s/%s\nschema    %d\n",
				version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH, migrations.Latest())
			return err
		},
	}
}

// builtFrom is the version, and the revision of the version control that it was built from.
func builtFrom() (version, revision string) {
	version, revision = cmp.Or(releaseVersion, "(devel)"), "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, revision
	}
	version = cmp.Or(releaseVersion, info.Main.Version, version)
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
