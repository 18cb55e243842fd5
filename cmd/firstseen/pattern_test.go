package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

func TestCommandsKnowTheTopicsThatAPatternMatches(t *testing.T) {
	s := newShop(t, booking)
	topic := func(last string) string { return s.topic + "." + last }
	filled := func(last string) {
		t.Helper()
		consumertest.CreateTopic(t, s.addr, topic(last), 1)
		consumertest.Fill(t, s.addr, topic(last), 1, 10)
	}
	config := fmt.Sprintf(`
postgres: {dsn: %q}
kafka: {brokers: [%q]}
group: %s
topics:
  - {pattern: '%s\.[a-z]{2}', handlers: [{name: book, function: billing.book_order}]}
  - {pattern: 'none\..*', handlers: [{name: book, function: billing.book_order}]}
timeouts: {pattern_interval: 300ms, metadata_interval: 200ms}
`, s.db.DSN, s.addr, s.group, s.topic)
	path := filepath.Join(t.TempDir(), "firstseen.yaml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	ask := func(code int, args ...string) string {
		t.Helper()
		stdout, stderr, got := command(t, append(args, "--config", path)...)
		require.Equal(t, code, got, stdout+stderr)
		return stdout + stderr
	}
	require.Contains(t, ask(exitFailure, "offsets", "show"), "no topic of the cluster matches "+s.topic)
	filled("eu")
	filled("other")
	p := start(t, config, "run")
	eventually(t, func() bool { return s.booked() == 10 })
	filled("us")
	eventually(t, func() bool { return s.booked() == 20 })

	require.Contains(t, ask(exitWarning, "doctor", "--only", "kafka.topics"),
		"warning  kafka.topics: no topic is read by the pattern none")
	ask(exitOK, "pause", "topic", topic("eu"), "--why", "an incident")
	ask(exitOK, "resume", "topic", topic("eu"), "--why", "it is over")
	require.Contains(t, ask(exitOK, "explain", topic("eu")+"/0/3"), "book")
	consumertest.AwaitCommitted(t, s.addr, s.group, topic("us"), 0, 10)
	consumertest.AwaitCommitted(t, s.addr, s.group, topic("eu"), 0, 10)
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())

	shown := ask(exitOK, "offsets", "show")
	require.Contains(t, shown, topic("eu")+"/0")
	require.Contains(t, shown, topic("us")+"/0")
	require.NotContains(t, shown, "other")
	require.Contains(t, ask(exitOK, "replay", topic("eu"), "--from", "earliest"), "10")
	require.Equal(t, 20, s.booked(), "a replay has no effect again")
	require.Contains(t, ask(exitUsage, "replay", topic("other"), "--from", "earliest"),
		"the config has no topic "+topic("other")+"; it has: "+s.topic+`\.[a-z]{2}, none\..*`)
	require.Contains(t, ask(exitOK, "offsets", "reset", topic("us"), "--to", "earliest", "--why", "mended"),
		"the group goes on there")
	require.Contains(t, ask(exitOK, "run", "--check"), "reads 2 topics ("+s.topic)
}
