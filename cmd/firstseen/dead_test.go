package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/identity"
)

// office is a database with messages in all states, to work on from the command line.
type office struct {
	t     *testing.T
	db    *deduptest.DB
	store *dedup.Store
	next  int64
}

func newOffice(t *testing.T) *office { return newOfficeOf(t, "orders-inbox") }

func newOfficeOf(t *testing.T, inbox string) *office {
	t.Helper()
	t.Chdir(t.TempDir())
	o := &office{t: t, db: deduptest.New(t)}
	var err error
	o.store, err = dedup.Open(t.Context(), o.db.Pool, dedup.Config{Inbox: inbox})
	require.NoError(t, err)
	return o
}

// add takes a message in, in the state that it is given; its ID is that of the text.
func (o *office) add(rawID string, state dedup.State, m dedup.Message) dedup.Message {
	o.t.Helper()
	return o.addTo("book", rawID, state, "attempts_exhausted", m)
}

// addTo is add for a handler of another name, a message of another topic, or a dead letter of another reason.
func (o *office) addTo(handler, rawID string, state dedup.State, reason string, m dedup.Message) dedup.Message {
	o.t.Helper()
	ids, err := identity.ParseIDs(rawID)
	require.NoError(o.t, err)
	m.ID, m.RawID, m.Topic, m.Offset = ids[0], rawID, cmp.Or(m.Topic, "orders"), o.next
	if m.RawTimestamp == 0 && m.Timestamp.IsZero() {
		m.Timestamp = time.Unix(1e9, 0)
	}
	m.Fingerprint = identity.FingerprintBytes.Of(m.Value)
	o.next++
	scopes, err := o.store.Scopes(o.t.Context(), []dedup.ScopeKey{{Handler: handler}})
	require.NoError(o.t, err)
	e := dedup.Entry{Scope: scopes.IDs[0], Message: &m, Lane: m.ID, State: state}
	if state == dedup.Dead {
		e.Attempts, e.Reason, e.Error = 10, reason, "insert:\nno such account\x1b[2J"
	}
	tx, err := o.store.Accept(o.t.Context(), &dedup.Batch{Entries: []dedup.Entry{e}})
	require.NoError(o.t, err)
	require.NoError(o.t, tx.Commit(o.t.Context()))
	return m
}

// run gives a command the database, and requires its exit code.
func (o *office) run(code int, args ...string) (stdout, stderr string) {
	o.t.Helper()
	stdout, stderr, got := command(o.t, append(args, "--dsn", o.db.DSN)...)
	require.Equal(o.t, code, got, stdout+stderr)
	return stdout, stderr
}

func TestDeadListIsATableThatPagesAndFilters(t *testing.T) {
	o := newOffice(t)
	_, stderr := o.run(exitFailure, "dead", "list")
	require.Contains(t, stderr, "has seen no message yet")
	for i := range 3 {
		o.add(fmt.Sprint("order-", i), dedup.Dead, dedup.Message{Key: []byte{byte(i)}})
	}
	stdout, _ := o.run(exitOK, "dead", "list", "--limit", "2")
	lines := strings.Split(stdout, "\n")
	require.Regexp(t, `^DIED \(UTC\) +HANDLER +MESSAGE +ID +ATTEMPTS +REASON +ERROR$`, lines[0])
	require.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +book +orders/0@2 +order-2 +10 +attempts_exhausted +insert: no such account\\u001b\[2J$`, lines[1])
	require.Regexp(t, `orders/0@1`, lines[2])
	require.Regexp(t, `^there are more: --after \S+$`, lines[3])
	cursor := strings.Fields(lines[3])[4]
	stdout, _ = o.run(exitOK, "dead", "list", "--limit", "2", "--after", cursor)
	require.Contains(t, stdout, "orders/0@0")
	require.NotContains(t, stdout, "there are more")
	stdout, _ = o.run(exitOK, "dead", "list", "--key", `\x01`, "--since", "1h", "--topic", "orders")
	require.Equal(t, 2, strings.Count(stdout, "\n"))
	require.Contains(t, stdout, "order-1")
	stdout, _ = o.run(exitOK, "dead", "list", "--until", "2001-01-01")
	require.Equal(t, "inbox orders-inbox: no dead letters match\n", stdout)
}

func TestDeadShowTellsNullFromEmptyAndTextFromBytes(t *testing.T) {
	o := newOffice(t)
	o.add("json", dedup.Dead, dedup.Message{Value: []byte(`{"a":1.50,"b":"<x>"}`), Key: []byte{},
		Headers: []dedup.Header{{Key: "trace", Value: []byte("a")}, {Key: "trace"}, {Key: "trace", Value: []byte{}},
			{Key: "bin", Value: []byte{0, 0xff}}}})
	stdout, _ := o.run(exitOK, "dead", "show", "json")
	require.Contains(t, stdout, "  trace: \"a\"\n  trace: null\n  trace: \"\"\n  bin: \\x00ff\n")
	require.Contains(t, stdout, "value     20 bytes, JSON\n{\n  \"a\": 1.50,\n  \"b\": \"<x>\"\n}\n")
	require.Regexp(t, `(?m)^raw id +"json"$`, stdout)
	require.Regexp(t, `(?m)^key +""$`, stdout)
	require.Regexp(t, `(?m)^error +insert:\n +no such account\\u001b\[2J$`, stdout)
	for value, want := range map[string]string{"": "\"\" (empty)\n", "null": "4 bytes, JSON\nnull\n",
		"a\nb": "3 bytes, text\na\nb\n", "\x1b[31m": "5 bytes\n00000000  1b 5b 33 31 6d"} {
		id := "v" + fmt.Sprint(len(value)) + want[:1]
		o.add(id, dedup.Dead, dedup.Message{Value: []byte(value)})
		stdout, _ = o.run(exitOK, "dead", "show", id)
		require.Contains(t, stdout, "value     "+want)
		require.Regexp(t, `(?m)^key +null$`, stdout)
	}
	o.add("tombstone", dedup.Dead, dedup.Message{})
	stdout, _ = o.run(exitOK, "dead", "show", "tombstone")
	require.Contains(t, stdout, "value     null (a tombstone)\n")
	_, stderr := o.run(exitFailure, "dead", "show", "nobody")
	require.Contains(t, stderr, "no dead letter has the ID nobody")
}

func TestDeadJSONHoldsEveryByte(t *testing.T) {
	o := newOffice(t)
	o.add("x", dedup.Dead,
		dedup.Message{Value: []byte{0, 0xff}, Key: []byte("k"), Headers: []dedup.Header{{Key: "none"}}})
	for _, args := range [][]string{{"dead", "list", "--json"}, {"dead", "show", "x", "--json"}} {
		stdout, _ := o.run(exitOK, args...)
		var got struct {
			DeadLetters []struct {
				ID      uuid.UUID `json:"id"`
				Content struct {
					Value   struct{ Base64 []byte }
					Key     struct{ Text string }
					Headers []struct {
						Key   string
						Value any
					}
				}
				Attempts int
				Error    string
			} `json:"messages"`
			Next *string
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &got))
		require.Len(t, got.DeadLetters, 1)
		d := got.DeadLetters[0]
		require.Equal(t, []byte{0, 0xff}, d.Content.Value.Base64)
		require.Equal(t, "k", d.Content.Key.Text)
		require.Equal(t, "none", d.Content.Headers[0].Key)
		require.Nil(t, d.Content.Headers[0].Value)
		require.Equal(t, "insert:\nno such account\x1b[2J", d.Error)
		require.Nil(t, got.Next)
	}
}

func TestRedriveAndDiscardAskForAReasonAndACircle(t *testing.T) {
	o := newOffice(t)
	for i := range 3 {
		o.add(fmt.Sprint("order-", i), dedup.Dead, dedup.Message{})
	}
	_, stderr := o.run(exitUsage, "dead", "redrive", "--why", "x")
	require.Contains(t, stderr, "say which dead letters to redrive")
	_, stderr = o.run(exitUsage, "dead", "discard", "--all")
	require.Contains(t, stderr, "--why is required")
	o.run(exitUsage, "dead", "discard", "--all", "--id", "order-1", "--why", "x")
	stdout, _ := o.run(exitOK, "dead", "redrive", "--all", "--dry-run")
	require.Equal(t, "3 dead letters would be redriven\n", stdout)
	stdout, _ = o.run(exitOK, "dead", "redrive", "--id", "order-1", "--why", "mended", "--actor", "eve")
	require.Equal(t, "1 dead letter redriven\n", stdout)
	_, stderr = o.run(exitFailure, "dead", "redrive", "--id", "order-1", "--why", "mended")
	require.Equal(t, "firstseen: no dead letter matches: nothing to redrive\n", stderr)
	stdout, _ = o.run(exitOK, "dead", "discard", "--reason", "attempts_exhausted", "--why", "tests", "--json", "--yes")
	require.JSONEq(t, `{"action": "discard", "messages": 2, "dry_run": false}`, stdout)
	var n int
	require.NoError(t, o.db.Pool.QueryRow(t.Context(), `select count(*) from firstseen.audit
		where (actor, action, why) in (('eve', 'redrive', 'mended'), ($1, 'discard', 'tests'))`, actor()).Scan(&n))
	require.Equal(t, 3, n)
}

func TestInboxIsTheConfigsOrTheOnlyOne(t *testing.T) {
	o := newOffice(t)
	o.add("order-1", dedup.Dead, dedup.Message{})
	other, err := dedup.Open(t.Context(), o.db.Pool, dedup.Config{Inbox: "other"})
	require.NoError(t, err)
	_, err = other.Scopes(t.Context(), []dedup.ScopeKey{{Handler: "h"}})
	require.NoError(t, err)
	_, stderr := o.run(exitUsage, "dead", "list")
	require.Contains(t, stderr, "--inbox is required, one of: orders-inbox, other")
	o.run(exitOK, "dead", "show", "order-1", "--inbox", "orders-inbox")
	for key, code := range map[string]int{"inbox: orders-inbox": exitOK, "group: orders-inbox": exitOK,
		"group: other": exitFailure} {
		require.NoError(t,
			os.WriteFile("firstseen.yaml", []byte(fmt.Sprintf("postgres: {dsn: %q}\n%s\n", o.db.DSN, key)), 0o600))
		_, stderr, got := command(t, "dead", "show", "order-1")
		require.Equal(t, code, got, key+stderr)
	}
}

func TestOperatorsCommandsRefuseWrongUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range []string{"dead lst", "dead list x", "dead list --limit 0", "dead list --since yesterday",
		"dead list --key \\x0", "dead show", "dead show a b", "dead redrive --id " + uuid.Nil.String(),
		"conflicts show", "conflicts list --reason x", "explain", "explain a b", "explain x --since -", "dead list"} {
		stdout, stderr, code := command(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, code, args+stderr)
		require.Empty(t, stdout, args)
	}
}

func TestTimesAreReadAsTheyArePrinted(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "2h": now.Add(-2 * time.Hour), "2026-02-28": now.AddDate(0, 0, -1).Truncate(24 * time.Hour),
		"2026-03-01 11:59:00":       now.Add(-time.Minute),
		"2026-03-01T13:00:00+01:00": now,
	} {
		got, err := parseTime(text, now)
		require.NoError(t, err)
		require.True(t, want.Equal(got), "%s: %s", text, got)
	}
}
