package main

import (
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// hostile steers a terminal, begins a line of its own, and turns what follows round.
const hostile = "\x1b[2J\u009b31m\u202e\nfake\tline\rX"

func (o *office) addHostile(state dedup.State) (id string) {
	o.t.Helper()
	scopes, err := o.store.Scopes(o.t.Context(), []dedup.ScopeKey{{Handler: "h" + hostile, Tenant: "t" + hostile}})
	require.NoError(o.t, err)
	m := dedup.Message{ID: uuid.New(), RawID: hostile, Topic: "o" + hostile, Key: []byte(hostile),
		Value: []byte(hostile), Headers: []dedup.Header{{Key: hostile, Value: []byte(hostile)}}}
	e := dedup.Entry{Scope: scopes.IDs[0], Message: &m, Lane: m.ID, State: state}
	if state != dedup.Processed {
		e.Attempts, e.Reason, e.Error = 1, "r"+hostile, hostile
	}
	tx, err := o.store.Accept(o.t.Context(), &dedup.Batch{Entries: []dedup.Entry{e}})
	require.NoError(o.t, err)
	require.NoError(o.t, tx.Commit(o.t.Context()))
	for _, sql := range []string{
		`insert into firstseen.conflicts (scope_id, fingerprint, message_id, topic, "partition", "offset", payload) values ($1, '\x02', $2, $3, 0, 0, 'x')`,
		`insert into firstseen.audit (actor, action, why, scope_id, message_id) values ($3, 'redrive', $3, $1, $2)`} {
		_, err = o.db.Pool.Exec(o.t.Context(), sql, scopes.IDs[0], m.ID, hostile)
		require.NoError(o.t, err)
	}
	return m.ID.String()
}

func TestWhatComesFromMessagesDoesNotSteerTheTerminal(t *testing.T) {
	o := newOffice(t)
	processed, parked, dead := o.addHostile(dedup.Processed), o.addHostile(dedup.Parked), o.addHostile(dedup.Dead)
	_, err := o.db.Pool.Exec(t.Context(),
		`insert into firstseen.positions (consumer, topic, "partition", next_offset, owner) values ($1, $1, 0, 5, $1)`,
		hostile)
	require.NoError(t, err)
	_, err = operate.Of(o.store).Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: hostile},
		operate.By{Actor: hostile, Why: hostile})
	require.NoError(t, err)
	for _, args := range [][]string{{"dead", "list"}, {"dead", "show", dead}, {"inbox", "list", "--status", "failed"},
		{"inbox", "list", "--status", "processed"}, {"inbox", "show", parked}, {"inbox", "show", processed},
		{"conflicts", "list"}, {"conflicts", "show", dead}, {"explain", dead}, {"explain", parked}, {"status"},
		{"pause", "list"}, {"size"}, {"rerun", "--handler", "h" + hostile, "--id", processed, "--dry-run"}, {"doctor", "--all"},
		{"dead", "list", "--inbox", hostile}, {"dead", "show", hostile}, {"dead", "list", "--" + hostile},
		{"pause", "topic", hostile, "--why", hostile}} {
		stdout, stderr, _ := command(t, append(args, "--dsn", o.db.DSN)...)
		require.NotRegexp(t, "[\x1b\u009b\u202e\r]", stdout+stderr, "%q", args)
		if len(args) == 1 || args[1] != "show" { // there a value and an error have lines of their own
			require.NotRegexp(t, `(?m)^\s*fake`, stdout+stderr, "%q", args)
		}
	}
}

func TestFlagWithoutAValueIsRefused(t *testing.T) {
	o := newOffice(t)
	o.add("order-1", dedup.Dead, dedup.Message{})
	for _, flag := range []string{"--topic", "--handler", "--tenant", "--reason", "--since",
		"--until", "--inbox", "--config"} {
		_, stderr := o.run(exitUsage, "dead", "discard", flag, "", "--why", "a variable that is not set")
		require.Contains(t, stderr, flag+" is empty", flag)
	}
	_, stderr := o.run(exitUsage, "dead", "discard", "--until", "0001-01-01", "--why", "no time at all")
	require.Contains(t, stderr, "--until")
	t.Setenv("FIRSTSEEN_POSTGRES_DSN", o.db.DSN)
	_, stderr, code := command(t, "migrate", "down", "--to", "1", "--dsn", "")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--dsn is empty")
	stdout, _ := o.run(exitOK, "dead", "list", "--key", "", "--after", "")
	require.Contains(t, stdout, "no dead letters match", "a null key is not an empty one")
}

func TestUnknownInboxIsWarnedOf(t *testing.T) {
	o := newOffice(t)
	_, stderr := o.run(exitOK, "dead", "list", "--inbox", "orders-inbox")
	require.Contains(t, stderr, `no message for the inbox "orders-inbox"; it has: none`)
	o.add("order-1", dedup.Dead, dedup.Message{})
	_, stderr = o.run(exitOK, "pause", "topic", "orders", "--inbox", "order-inbox", "--why", "a slip")
	require.Contains(t, stderr, `no message for the inbox "order-inbox"; it has: orders-inbox`)
	_, stderr = o.run(exitOK, "dead", "list", "--inbox", "orders-inbox")
	require.Empty(t, stderr)
}

func TestDSNStandsInForTheConfigsFileOfOne(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("dsn", []byte("postgres://firstseen@127.0.0.1:1/none"), 0o600))
	require.NoError(t, os.WriteFile("firstseen.yaml", []byte(`
postgres: {dsn_file: dsn}
kafka: {brokers: ["127.0.0.1:1"]}
group: g
topics: [{name: orders, handlers: [{name: book, function: book}]}]`), 0o600))
	for _, args := range [][]string{{"offsets", "show"}, {"offsets", "reset", "orders", "--to", "1", "--dry-run"}} {
		_, stderr, code := command(t, append(args, "--dsn", "postgres://operator@127.0.0.1:1/none")...)
		require.Equal(t, exitFailure, code, stderr)
		require.Contains(t, stderr, "user=operator")
	}
}
