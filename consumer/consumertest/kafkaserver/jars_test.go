package kafkaserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEmbeddedPomFetchesTheVersionThatTheCacheIsNamedFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jars")
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Chdir(t.TempDir()) // far from the module

	require.NoError(t, fetch(dir))

	require.FileExists(t, filepath.Join(dir, "kafka_2.13-"+Version+".jar"))
	require.FileExists(t, filepath.Join(dir, "kafka-tools-"+Version+".jar"))
	require.NoFileExists(t, dir+".log")
}
