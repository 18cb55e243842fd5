package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionIsThatOfTheRelease(t *testing.T) {
	was := releaseVersion
	defer func() { releaseVersion = was }()
	releaseVersion = "v1.2.3"
	stdout, stderr, code := command(t, "version")
	require.Equal(t, exitOK, code, stderr)
	require.Regexp(t, `^firstseen v1\.2\.3\nrevision  .+\ngo        go1\..+\nschema    \d+\n$`, stdout)
	stdout, stderr, code = command(t, "--version")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "firstseen version v1.2.3\n", stdout)
}

func TestVersionOfAnyOtherBuildIsTheModules(t *testing.T) {
	version, revision := builtFrom()
	require.NotEmpty(t, version)
	require.NotEmpty(t, revision)
}
