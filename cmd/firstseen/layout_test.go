package main

import (
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/firstseen/firstseen/"

// rooms are the module's layers from the bottom up: a package may import those below its own layer, and its own, and
// dedup/failure, which lies below all.
var rooms = []string{"migrations", "dedup", "handlers", "consumer", "cmd", "docs"}

// reserved says where a dependency may be imported; each place is a package's path or the start of one.
var reserved = map[string][]string{
	"github.com/segmentio/kafka-go":      {"consumer", "handlers/outbox", "cmd/internal", "cmd/guide"},
	"github.com/twmb/franz-go":           {"consumer", "handlers/outbox", "cmd/internal", "cmd/guide"},
	"github.com/twmb/franz-go/pkg/sr":    {"handlers/schemas"},
	"github.com/twmb/franz-go/pkg/kfake": {"consumer/consumertest", "consumer/crashtest", "cmd/internal/devstack"},
	"golang.org/x/oauth2":                {"consumer/oauthbearer"},
	"github.com/aws":                     {"consumer/mskiam"},
	"go.opentelemetry.io/otel/sdk":       {"cmd/internal/telemetry"},
	"go.opentelemetry.io/otel/exporters": {"cmd/internal/telemetry"},
	"github.com/pressly/goose":           {"migrations"},
	"github.com/fergusstrange":           {"dedup/deduptest"},
	"github.com/spf13/cobra":             {"cmd/firstseen", "cmd/bench"},
	"github.com/danielgtaylor/huma":      {"consumer/admin"}, // its variables are the whole process's: see there
	"go.yaml.in/yaml":                    {"cmd/internal/config"},
	"github.com/go-viper/mapstructure":   {"cmd/internal/config"},
	"github.com/stretchr/testify":        {},
	"github.com/chromedp":                {"consumer/consumertest/chromium"},
	"google.golang.org/protobuf":         {"handlers/protocodec", "handlers/schemas"},
	"github.com/twmb/avro":               {"handlers/avrocodec", "handlers/schemas"},
	module + "dedup/deduptest": {"dedup/deduptest", "consumer/consumertest", "consumer/crashtest",
		"cmd/internal/devstack", "cmd/internal/bench", "cmd/mutants"},
	module + "consumer/mskiam":                {"cmd/internal/config"},
	module + "handlers/handlertest":           {},
	module + "handlers/protocodec":            {"handlers/schemas"},
	module + "handlers/schemas":               {"cmd/internal/config"},
	module + "handlers/avrocodec":             {},
	module + "consumer/consumertest":          {"consumer/consumertest", "cmd/internal/bench"},
	module + "consumer/consumertest/chromium": {},
}

// strangers are what a package must not import, though it lies below.
var strangers = map[string][]string{
	"dedup/identity": {"github.com/jackc/pgx", module + "migrations"},
	"dedup/request":  {"github.com/jackc/pgx", module},
	"dedup/failure":  {module},
	"dedup/httpjson": {module},
}

func TestPackagesImportOnlyWhatLiesBelowThem(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			checkLayer(t, p.ImportPath, imported)
			checkReserved(t, p.ImportPath, imported)
			for _, stranger := range strangers[p.ImportPath] {
				require.False(t, strings.HasPrefix(imported, stranger),
					"%s must not import %s", p.ImportPath, imported)
			}
		}
	}
}

func checkLayer(t *testing.T, from, imported string) {
	below, ours := strings.CutPrefix(imported, module)
	if !ours || strings.Contains(from, "/deduptest") || strings.Contains(from, "/consumertest") {
		return // a test kit may use what it tests
	}
	require.LessOrEqual(t, layer(below), layer(from), "%s must not import %s", from, imported)
}

func layer(path string) int {
	if path == "dedup/failure" {
		return 0
	}
	room, _, _ := strings.Cut(path, "/")
	return slices.Index(rooms, room)
}

// checkReserved holds the import against the longest prefix that is listed.
func checkReserved(t *testing.T, from, imported string) {
	longest := ""
	for prefix := range reserved {
		if (imported == prefix || strings.HasPrefix(imported, prefix+"/")) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	if longest == "" {
		return
	}
	allowed := slices.ContainsFunc(reserved[longest], func(place string) bool {
		return from == place || strings.HasPrefix(from, place+"/")
	})
	require.True(t, allowed, "%s must not import %s, which belongs in %v", from, imported, reserved[longest])
}

// What measures, tries or shows is no part of the program that users run.
func TestProgramLinksNeitherBenchNorTestKitsButForTheDemoAndTheCrashTest(t *testing.T) {
	linked := linkedBy(t, "cmd/firstseen")
	for path := range linked {
		require.NotContains(t, path, "bench")
		require.NotContains(t, path, "consumertest")
		require.NotEqual(t, "dedup/deduptest", path, "only pgserver and child, which the demo and the crash test start Postgres with")
	}
	require.Contains(t, linked, "cmd/internal/devstack")
}

// Who puts idempotency before HTTP handlers takes in no broker and no command line.
func TestIdempotencyLinksNeitherKafkaNorACommandLine(t *testing.T) {
	for _, path := range []string{"dedup/idempotency", "dedup/idempotency/idempotencytest"} {
		linked := linkedBy(t, path)
		require.Contains(t, linked, "github.com/jackc/pgx/v5")
		for imported := range linked {
			for _, stranger := range []string{"kafka-go", "franz-go", "cobra", "handlers", "consumer"} {
				require.NotContains(t, imported, stranger)
			}
		}
	}
}

// Nor does who takes messages in by HTTP, nor what writes the document: only its tests have that.
func TestIngressLinksNeitherKafkaNorACommandLine(t *testing.T) {
	for imported := range linkedBy(t, "handlers/ingress") {
		for _, stranger := range []string{"kafka-go", "franz-go", "cobra", "huma", "consumer", "cmd/"} {
			require.NotContains(t, imported, stranger)
		}
	}
}

// Who has probes, metrics and retention in a program takes in no command line, no config and no API; and with the API no
// more than that.
func TestWhatIsAroundAConsumerLinksNoCommandLine(t *testing.T) {
	for path, strangers := range map[string][]string{
		"consumer/service": {"cobra", "koanf", "yaml", "mapstructure", "huma", "otel/sdk", "otel/exporters", "cmd/"},
		"consumer/admin":   {"cobra", "koanf", "yaml", "mapstructure", "otel/sdk", "otel/exporters", "cmd/"},
	} {
		for imported := range linkedBy(t, path) {
			for _, stranger := range strangers {
				require.NotContains(t, imported, stranger, path)
			}
		}
	}
}

// linkedBy is what a package of the module links by way of packages of the module: theirs are relative paths.
func linkedBy(t *testing.T, path string) map[string]bool {
	imports := map[string][]string{}
	for _, p := range packages(t) {
		imports[p.ImportPath] = p.Imports
	}
	require.Contains(t, imports, path)
	linked := map[string]bool{}
	var link func(path string)
	link = func(path string) {
		if linked[path] {
			return
		}
		linked[path] = true
		for _, imported := range imports[path] {
			link(strings.TrimPrefix(imported, module))
		}
	}
	link(path)
	return linked
}

func TestTopLevelHoldsTheSixRoomsAndNoOther(t *testing.T) {
	allowed := []string{"cmd", "consumer", "dedup", "handlers", "migrations", "testdata", "docs",
		"go.mod", "go.sum", "Makefile", "README.md", "CHANGELOG.md", "LICENSE", "compose.yaml", "bin"}
	entries, err := os.ReadDir(root(t))
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			require.Contains(t, allowed, e.Name())
		}
	}
}

// packages reads the imports of every package of the module, tests aside. ImportPath is relative to the module.
func packages(t *testing.T) (found []*build.Package) {
	base := root(t)
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != base && (strings.HasPrefix(name, ".") || name == "testdata") {
			return fs.SkipDir
		}
		p, err := build.ImportDir(path, 0)
		if err != nil {
			return nil // no Go files here
		}
		rel, err := filepath.Rel(base, path)
		p.ImportPath = filepath.ToSlash(rel)
		found = append(found, p)
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

func root(t *testing.T) string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "go.mod"))
	return dir
}
