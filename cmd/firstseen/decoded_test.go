package main

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/firstseen/firstseen/dedup"
)

func TestWhatIsShownIsDecodedWhereTheConfigHasARegistry(t *testing.T) {
	o := newOffice(t)
	registry := srfake.New()
	defer registry.Close()
	registry.SeedSchema("orders-value", 1, 7, sr.Schema{Type: sr.TypeAvro,
		Schema: `{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}`})
	config := fmt.Sprintf("registry: {url: '%s'}\ninbox: orders-inbox\ntopics: [{name: orders}]\n", registry.URL())
	require.NoError(t, os.WriteFile("other.yaml", []byte(config), 0o600))
	o.add("good", dedup.Dead, dedup.Message{Value: []byte("\x00\x00\x00\x00\x07\x54")})
	o.add("unknown", dedup.Dead, dedup.Message{Value: []byte("\x00\x00\x00\x00\x08\x54")})

	stdout, _ := o.run(exitOK, "dead", "show", "good", "--config", "other.yaml")
	require.Contains(t, stdout, "value     6 bytes\n")
	require.Contains(t, stdout, "decoded   9 bytes, JSON\n{\n  \"id\": 42\n}\n")
	stdout, _ = o.run(exitOK, "dead", "show", "unknown", "--config", "other.yaml")
	require.Contains(t, stdout, "decoded   the schema registry does not know schema ID 8\n")
	stdout, _ = o.run(exitOK, "dead", "show", "good", "--inbox", "orders-inbox")
	require.NotContains(t, stdout, "decoded")

	stdout, _ = o.run(exitOK, "dead", "list", "--json", "--config", "other.yaml")
	var listed struct {
		Messages []struct {
			RawID   string `json:"raw_id"`
			Content struct {
				Decoded *struct {
					Text string `json:"text"`
				} `json:"decoded"`
				Error string `json:"decode_error"`
			} `json:"content"`
		} `json:"messages"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &listed))
	require.Len(t, listed.Messages, 2)
	for _, m := range listed.Messages {
		if m.RawID == "good" {
			require.Equal(t, `{"id":42}`, m.Content.Decoded.Text)
		} else {
			require.Equal(t, "the schema registry does not know schema ID 8", m.Content.Error)
		}
	}
}
