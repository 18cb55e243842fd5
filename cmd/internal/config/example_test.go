package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExampleIsTheConfigOfWhatIsRequired(t *testing.T) {
	got, err := loadText(t, Example())
	require.NoError(t, err)
	want, err := loadText(t, `
postgres: {dsn: "postgres://firstseen@localhost:5432/app"}
kafka: {brokers: ["localhost:9092"]}
group: billing
topics: [{name: orders, handlers: [{name: book, function: billing.book_order}, {name: notify, webhook: {url: "https://example.com/orders"}}]}]
outbox: {destinations: [{name: events, topics: billing.events}, {name: crm, topics: crm, webhook: {url: "https://example.com/crm"}}]}
`)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestExampleHasEveryKeyWithItsCommentAndWhatItTakes(t *testing.T) {
	lines := strings.Split(Example(), "\n")
	at := exampleLines(lines)
	values := effectiveValues(t)
	for _, k := range keys {
		i, there := at[k.path]
		require.True(t, there, k.path)
		require.Regexp(t, `^ *(#|cert_file:)`, lines[i-1], "%s has no comment", k.path)
		if k.section {
			continue
		}
		require.Contains(t, lines[i], "# "+k.facts())
		if k.commentDefault() != "" {
			require.Contains(t, lines[i], ": "+yamlValue(values[k.path])+" #")
		}
	}
}

// exampleLines are the numbers of the lines that each key is first on.
func exampleLines(lines []string) map[string]int {
	type level struct {
		indent int
		path   string
	}
	var above []level
	at := map[string]int{}
	for i, line := range lines {
		bare := strings.TrimLeft(line, " -")
		name, _, isKey := strings.Cut(bare, ":")
		if !isKey || strings.HasPrefix(bare, "#") {
			continue
		}
		indent := len(line) - len(bare)
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		path := name
		if len(above) > 0 {
			path = above[len(above)-1].path + "." + name
		}
		if k, known := findKey(path); known && k.list {
			path += "[]"
		}
		above = append(above, level{indent, path})
		if path = strings.TrimSuffix(path, "[]"); at[path] == 0 {
			at[path] = i
		}
	}
	return at
}

func TestExampleFitsAPage(t *testing.T) {
	for line := range strings.Lines(Example()) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			require.LessOrEqual(t, len(line), pageWidth+1)
		}
	}
}
