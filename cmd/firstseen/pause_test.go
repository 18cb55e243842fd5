package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/migrations"
)

func TestPauseAndResumeSayWhetherAnythingChanged(t *testing.T) {
	o := newOffice(t)
	o.add("order-1", dedup.Parked, dedup.Message{})
	stdout, stderr := o.run(exitOK, "pause", "handler", "book", "--why", "incident 482", "--actor", "eve")
	require.Equal(t, "inbox orders-inbox: handler book paused\n", stdout)
	require.Empty(t, stderr)
	stdout, _ = o.run(exitOK, "pause", "handler", "book", "--why", "again")
	require.Equal(t, "inbox orders-inbox: handler book was paused already\n", stdout)
	stdout, _ = o.run(exitOK, "pause", "partition", "orders/3", "--why", "x", "--json")
	require.JSONEq(t, `{"inbox": "orders-inbox", "action": "pause", "kind": "partition", "name": "orders/3", "changed": true}`, stdout)

	stdout, _ = o.run(exitOK, "pause", "list")
	lines := strings.Split(stdout, "\n")
	require.Regexp(t, `^SINCE \(UTC\) +KIND +NAME +BY +WHY$`, lines[0])
	require.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +handler +book +eve +incident 482$`, lines[1])
	require.Regexp(t, ` partition +orders/3 `, lines[2])
	stdout, _ = o.run(exitOK, "pause", "list", "--json")
	var got struct {
		Inbox  string
		Pauses []struct {
			Kind, Name, Actor, Why string
			At                     time.Time
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Len(t, got.Pauses, 2)
	require.Equal(t, "eve", got.Pauses[0].Actor)
	require.WithinDuration(t, time.Now(), got.Pauses[0].At, time.Minute)

	stdout, _ = o.run(exitOK, "resume", "handler", "book", "--why", "mended")
	require.Equal(t, "inbox orders-inbox: handler book resumed\n", stdout)
	stdout, _ = o.run(exitOK, "resume", "handler", "book", "--why", "mended", "--json")
	require.JSONEq(t,
		`{"inbox": "orders-inbox", "action": "resume", "kind": "handler", "name": "book", "changed": false}`, stdout)
	o.run(exitOK, "resume", "partition", "orders/3", "--why", "x")
	stdout, _ = o.run(exitOK, "pause", "list")
	require.Equal(t, "inbox orders-inbox: nothing is paused\n", stdout)
}

func TestPauseWarnsOfANameThatNothingHas(t *testing.T) {
	o := newOffice(t)
	o.add("order-1", dedup.Parked, dedup.Message{})
	_, err := o.store.Acquire(t.Context(), "group", "orders", 3, "owner")
	require.NoError(t, err)
	for _, c := range [][]string{{"handler", "bok", `no handler "bok" yet; did you mean "book"?`},
		{"topic", "order", `did you mean "orders"?`}, {"topic", "zzz", `no topic "zzz" yet`},
		{"partition", "orders/4", `no partition "orders/4" yet`}} {
		stdout, stderr := o.run(exitOK, "pause", c[0], c[1], "--why", "x")
		require.Contains(t, stderr, "warning: inbox orders-inbox has seen no ")
		require.Contains(t, stderr, c[2])
		require.Contains(t, stdout, c[0]+" "+c[1]+" paused", "it may come later")
	}
	_, stderr := o.run(exitOK, "pause", "partition", "orders/3", "--why", "x")
	require.Empty(t, stderr)
}

func TestWhatALoginMayNotDoNamesTheRoleThatItTakes(t *testing.T) {
	o := newOffice(t)
	o.add("order-1", dedup.Dead, dedup.Message{})
	script, err := migrations.Roles(migrations.Config{})
	require.NoError(t, err)
	script += `; create role "Eve" login; grant firstseen_consumer to "Eve"`
	_, err = o.db.Pool.Exec(t.Context(), script, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = o.db.Pool.Exec(context.Background(), `drop owned by "Eve"; drop role "Eve"`) })
	o.db.DSN = deduptest.As(t, o.db.DSN, "Eve")
	for _, args := range [][]string{{"pause", "topic", "orders"}, {"dead", "redrive", "--id", "order-1"},
		{"dead", "discard", "--id", "order-1", "--yes"}} {
		_, stderr := o.run(exitFailure, append(args, "--why", "x")...)
		require.Contains(t, stderr, `the role firstseen_operator, which the login Eve does not have`)
		require.Contains(t, stderr, `grant firstseen_operator to "Eve"`)
	}
}

func TestPauseRefusesWrongUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range []string{"pause orders", "pause topic", "pause topic a b --why x", "pause topic orders",
		"pause partition orders --why x", "pause list x", "resume list",
		"resume handler book", "resume day --why x"} {
		stdout, stderr, code := command(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, code, args+stderr)
		require.Empty(t, stdout, args)
	}
}
