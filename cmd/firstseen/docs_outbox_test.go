package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// The page's commands are run in their order, on an outbox that has what they are about, with the page's config.
func TestCommandsOfTheOutboxsPageRun(t *testing.T) {
	page, program := findDocument(t, "docs/OUTBOX.md"), built(t)
	o := newOfficeOf(t, dedup.OutboxInbox)
	var w outbox.Writer
	_, err := w.Add(t.Context(), o.db.Pool, outbox.Message{Topic: "parcels", IdempotencyKey: "o-17 shipped"})
	require.NoError(t, err)
	m := dedup.Message{Topic: "customers", Timestamp: time.Now()}
	o.addTo("crm", "o-18 shipped", dedup.Dead, "attempts_exhausted", m)
	o.addTo("crm", "o-19 shipped", dedup.Dead, "permanent", m)
	dir := t.TempDir()
	config := sections["kafka"] + sections["group"] + sections["topics"] + "postgres: {dsn: '" + o.db.DSN + "'}\n"
	script := "set -euo pipefail\n"
	for _, b := range page.blocks {
		switch b.language {
		case "yaml":
			secret := filepath.Join(dir, "crm")
			require.NoError(t, os.WriteFile(secret, []byte(signing), 0o600))
			config += strings.Replace(b.text, "/run/secrets/crm", secret, 1)
		case "sh":
			script += b.text
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "firstseen.yaml"), []byte(config), 0o600))
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, want := range []string{"config ok: ", "parcels", "It waits in the outbox since", "attempts_exhausted",
		"2 dead letters would be redriven", "1 dead letter redriven", "1 dead letter discarded", "handler crm paused",
		"handler crm resumed", "6 ok, 0 info, 0 warnings, 0 faults"} {
		require.Contains(t, string(out), want)
	}
}
