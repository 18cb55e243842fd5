package pgserver

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

const newest = "18"

var versions = map[string]embeddedpostgres.PostgresVersion{
	"14": embeddedpostgres.V14,
	"15": embeddedpostgres.V15,
	"16": embeddedpostgres.V16,
	"17": embeddedpostgres.V17,
	"18": embeddedpostgres.V18,
}

// binaries gives the directory whose bin has initdb and postgres of the major version.
func binaries(major string) (string, error) {
	if major == "" {
		major = newest
	}
	version, known := versions[major]
	if !known {
		return "", fmt.Errorf("version %q: want one of 14, 15, 16, 17, 18", major)
	}
	return child.Cache("postgres-"+string(version), func(dir string) error {
		return extract(version, dir)
	})
}

// extract has the embedded-postgres module download its bundle, or take it from its own cache, and unpack
// it. The module has no call for that alone: Start does it first and then clears the data directory, which
// os.RemoveAll refuses for a path that ends in a dot. So Start ends right there.
func extract(version embeddedpostgres.PostgresVersion, dir string) error {
	const stopsBeforeInitdb = "unable to clean up data directory"
	config := embeddedpostgres.DefaultConfig().
		Version(version).
		Port(0).
		RuntimePath(dir).
		DataPath(filepath.Join(dir, "data") + "/.").
		Logger(io.Discard)
	err := embeddedpostgres.NewDatabase(config).Start()
	if err == nil {
		return fmt.Errorf("unpack postgres %s: started a server instead", version)
	}
	if !strings.Contains(err.Error(), stopsBeforeInitdb) {
		return fmt.Errorf("get postgres %s: %w", version, err)
	}
	return nil
}
