package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// newOutboxOffice has messages of the outbox in all states, of which those to the topic events wait.
func newOutboxOffice(t *testing.T) *office {
	o := newOfficeOf(t, dedup.OutboxInbox)
	o.add("sent", dedup.Processed, dedup.Message{Value: []byte("v")})
	o.add("behind", dedup.Parked, dedup.Message{})
	o.add("died", dedup.Dead, dedup.Message{})
	var w outbox.Writer
	_, err := w.AddAll(t.Context(), o.db.Pool, []outbox.Message{
		{Topic: "events", IdempotencyKey: "first", Value: []byte("1")}, {Topic: "events", IdempotencyKey: "second"},
		{Topic: "events", IdempotencyKey: "later", NotBefore: time.Now().Add(time.Hour)}})
	require.NoError(t, err)
	return o
}

func TestOutboxListsWhatWaitsAndWhatBecameOfMessages(t *testing.T) {
	o := newOutboxOffice(t)
	stdout, _ := o.run(exitOK, "outbox", "list", "--status", "pending", "--topic", "events", "--limit", "2")
	lines := strings.Split(stdout, "\n")
	require.Regexp(t, `^RECEIVED \(UTC\) +STATUS +DESTINATION +MESSAGE `, lines[0])
	require.Regexp(t, `^\d{4}-\d\d-\d\d \S+ +pending +events/\d+@3 +later +0 +\d{4}-`, lines[1])
	require.Regexp(t, `pending +events/\d+@2 +second +0 *$`, lines[2])
	stdout, _ = o.run(exitOK, "outbox", "list", "--status", "pending", "--topic", "events", "--after",
		strings.Fields(lines[3])[4])
	require.Contains(t, stdout, "first")
	require.Equal(t, 2, strings.Count(stdout, "\n"))
	stdout, _ = o.run(exitOK, "outbox", "list", "--status", "pending", "--destination", "book")
	require.Regexp(t, `pending +book +orders/0@1 +behind`, stdout)
	stdout, _ = o.run(exitOK, "outbox", "show", "first")
	require.Regexp(t, `(?m)^status +pending$`, stdout)
	stdout, _ = o.run(exitOK, "outbox", "backlog")
	require.Regexp(t, `(?m)^events +2 +0 +1 +0 +\d{4}-\S+ \S+$`, stdout)
	require.Regexp(t, `(?m)^orders +1 +0 +0 +1 +\d{4}-`, stdout)
	stdout, _ = o.run(exitOK, "explain", "first")
	require.Contains(t, stdout, "It waits in the outbox since")
	for _, args := range []string{"list --inbox x", "list --handler book", "list --status lost",
		"pause partition orders/0 --why x"} {
		_, stderr := o.run(exitUsage, append([]string{"outbox"}, strings.Fields(args)...)...)
		require.NotEmpty(t, stderr, args)
	}
}

func TestOutboxIsShownAndChangedTheSameByCommandLineAndAPI(t *testing.T) {
	o := newOutboxOffice(t)
	o.add("died too", dedup.Dead, dedup.Message{})
	o.add("died as well", dedup.Dead, dedup.Message{})
	api := o.api() + "/outbox"
	run := func(args ...string) string {
		stdout, _ := o.run(exitOK, append(append([]string{"outbox"}, args...), "--json")...)
		return stdout
	}
	requireSame(t, strings.Replace(run("pause", "destination", "book", "--why", "x"), "book", "other", 1),
		o.ask(http.MethodPost, api+"/pauses", `{"kind":"handler","name":"other","why":"x"}`), "pause")
	for command, path := range map[string]string{
		"list --status pending":                         "/messages?status=pending&content=true",
		"list --status pending --topic events":          "/messages?status=pending&content=true&topic=events",
		"list --status failed":                          "/messages?status=failed&content=true",
		"list --status processed":                       "/messages?status=processed&content=true",
		"list --status dead --destination book":         "/messages?status=dead&content=true&handler=book",
		"list --status pending --limit 1 --tenant none": "/messages?status=pending&content=true&limit=1&tenant=none",
		"backlog":    "/backlog",
		"pause list": "/pauses",
	} {
		requireSame(t, run(strings.Fields(command)...), o.ask(http.MethodGet, api+path, ""), command)
	}
	change := func(path, body string) string { return o.ask(http.MethodPost, api+"/dead-letters"+path, body) }
	requireSame(t, run("redrive", "--all", "--dry-run"), change("/redrive", `{"all":true,"dry_run":true}`), "count")
	requireSame(t, run("redrive", "--id", "died", "--why", "x"),
		change("/redrive", `{"ids":["died too"],"why":"x"}`), "redrive")
	o.add("died last", dedup.Dead, dedup.Message{})
	requireSame(t, run("discard", "--id", "died last", "--why", "x", "--yes"),
		change("/discard", `{"ids":["died as well"],"why":"x"}`), "discard")
	query := url.Values{"kind": {"handler"}, "name": {"other"}, "why": {"x"}}
	requireSame(t, strings.Replace(run("resume", "destination", "book", "--why", "x"), "book", "other", 1),
		o.ask(http.MethodDelete, api+"/pauses?"+query.Encode(), ""), "resume")
}
