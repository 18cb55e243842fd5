package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(path)))
	require.NoError(t, err)
	return string(text)
}

func release(t *testing.T) object {
	t.Helper()
	var o map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, ".goreleaser.yaml")), &o))
	return o
}

// What a release holds is there, or is made by `make extras`.
func TestReleaseHoldsWhatThereIs(t *testing.T) {
	made := readFile(t, "Makefile")
	sources := regexp.MustCompile(`(?:src|dockerfile|postinstall|extra_files): \[?([^\s,}\]]+)`).
		FindAllStringSubmatch(readFile(t, ".goreleaser.yaml"), -1)
	require.Greater(t, len(sources), 12)
	for _, m := range sources {
		if extra, ours := strings.CutPrefix(m[1], "bin/extras/completions/firstseen."); ours {
			assert.Regexp(t, `for shell in [a-z ]*\b`+extra+`\b`, made)
			continue
		}
		if strings.HasPrefix(m[1], "bin/extras/") {
			assert.Contains(t, made, strings.TrimSuffix(m[1], "/*"))
			continue
		}
		assert.FileExists(t, filepath.Join(root(t), m[1]))
	}
}

// The linker says nothing about a variable that is not there.
func TestReleaseSetsTheVersionOfTheProgram(t *testing.T) {
	flags := fmt.Sprint(release(t).at("builds.ldflags"))
	require.Contains(t, flags, "-X main.releaseVersion=v")
	require.Contains(t, readFile(t, "cmd/firstseen/version.go"), "\nvar releaseVersion string\n")
	require.Contains(t, release(t).at("builds.flags"), "-trimpath")
	require.Equal(t, []any{"CGO_ENABLED=0"}, release(t).at("builds.env"))
}

// Both images are started in the same way, and by the same user.
func TestImageOfAReleaseIsThatOfTheSource(t *testing.T) {
	_, source, found := strings.Cut(readDeploy(t, "Dockerfile"), "\nUSER ")
	require.True(t, found)
	_, built, found := strings.Cut(readDeploy(t, "release.Dockerfile"), "\nUSER ")
	require.True(t, found)
	require.Equal(t, source, built)
}

// The package has the unit with the program where the package puts it.
func TestUnitOfAPackageIsTheUnit(t *testing.T) {
	require.Contains(t, readFile(t, "Makefile"),
		"sed 's,/usr/local/bin/,/usr/bin/,' docs/deploy/firstseen.service >bin/extras/firstseen.service")
	require.Equal(t, 1, strings.Count(readDeploy(t, "firstseen.service"), "/usr/local/bin/"))
}

func TestWorkflowsCallWhatThereIs(t *testing.T) {
	makefile := readFile(t, "Makefile")
	for _, name := range []string{"test", "release"} {
		text := readFile(t, ".github/workflows/"+name+".yml")
		for _, m := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllStringSubmatch(text, -1) {
			assert.Regexp(t, `(?m)^`+m[1]+`:`, makefile)
		}
		for _, script := range regexp.MustCompile(`\.ci/\w+`).FindAllString(text, -1) {
			assert.FileExists(t, filepath.Join(root(t), script))
		}
	}
}

// What nobody runs proves nothing. The documentation's examples begin no goroutines.
func TestCIRunsEveryKindOfTestAndTheRaceDetectorOnEveryPackage(t *testing.T) {
	ci := readFile(t, ".ci/run")
	for _, step := range []string{"make lint", "make test", "make openapi", "make oldest", "make versions", "make race",
		"make soak", "^func Fuzz[A-Za-z0-9_]+' . "} {
		assert.Contains(t, ci, step)
	}
	_, race, _ := strings.Cut(readFile(t, "Makefile"), "\nrace:")
	race, _, _ = strings.Cut(race, "\n\n")
	covered := regexp.MustCompile(`\./(\w+)/\.\.\.`).FindAllStringSubmatch(race, -1)
	tests := 0
	require.NoError(t, filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (slices.Contains([]string{"testdata", "docs", "bin"}, d.Name()) || strings.HasPrefix(d.Name(), ".")) {
			return cmp.Or(err, fs.SkipDir)
		}
		dir, _ := filepath.Rel(root(t), path)
		top, _, _ := strings.Cut(filepath.ToSlash(dir), "/")
		if strings.HasSuffix(path, "_test.go") {
			tests++
			assert.True(t, slices.ContainsFunc(covered, func(m []string) bool { return m[1] == top }), dir)
		}
		return nil
	}))
	require.Greater(t, tests, 300)
}
