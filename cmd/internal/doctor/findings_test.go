package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/httpjson"
)

// Whoever reads --json relies on these files, as on those of package consumer/view.
func TestWhatIsToldIsAsItsGoldenFiles(t *testing.T) {
	for name, v := range map[string]any{
		"Findings.json": FindingsOf([]Finding{{Check: "kafka.lag", Level: Warning, Checked: true, Seen: "4 wait",
			Do: "wait"}}),
		"Checks.json": ListOf([]Check{{Name: "kafka.lag", About: "what waits"}}),
	} {
		got, err := httpjson.Marshal(v, "  ")
		require.NoError(t, err)
		golden, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.Equal(t, string(golden), string(got), name)
	}
}
