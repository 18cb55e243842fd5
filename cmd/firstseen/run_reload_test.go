package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The database is out of reach, so that nothing else has to be started: the config is followed from the first line on.
func TestRunReloadsItsConfig(t *testing.T) {
	s := &shop{t: t, addr: "127.0.0.1:1", topic: "orders", group: "billing"}
	text := s.config("postgres://app:hunter2@127.0.0.1:1/app")
	p := start(t, text, "run")
	p.awaitLog("waiting: Postgres does not answer")

	p.reload(text + "http: {rate: 0}\nhelth: {}\n")
	p.awaitLog("config not reloaded: it has faults, and the one before stays")
	require.Regexp(t, `http\.rate \(line \d+, column 8\): must be above 0`, p.log.String())
	require.Regexp(t, `helth \(line \d+, column 1\): unknown key; did you mean health\?`, p.log.String())

	p.reload(text + "log: {level: error}\nmax_parked: 5\nhttp: {write_token: a-token-for-writers}\n")
	p.awaitLog(`changed="log.level, http.write_token"`)
	p.awaitLog("keys=max_parked")
	p.reload(text + "log: {level: debug}\nhttp: {rate: 3}\n")
	p.awaitLog(`changed="log.level, http.write_token, http.rate"`)
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.NotContains(t, p.log.String(), "hunter2")
	require.NotContains(t, p.log.String(), "a-token")
}

// reload gives the program another config, and the signal to read it.
func (p *program) reload(text string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(p.config, []byte(text), 0o600))
	p.signal(syscall.SIGHUP)
}
