package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/admin"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// api serves the office's inbox, and gives the root of its admin API.
func (o *office) api() string {
	o.t.Helper()
	around, err := service.New(service.Config{Group: "billing", Inbox: "orders-inbox", Pool: o.db.Pool,
		Settings: service.Settings{Access: service.Access{Rate: 1000}}})
	require.NoError(o.t, err)
	server, err := admin.New(admin.Config{Service: around, Listen: "127.0.0.1:0"})
	require.NoError(o.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(o.t, server.Start(ctx))
	o.t.Cleanup(func() { cancel(); server.Stop() })
	around.Attach(service.Parts{Inbox: operate.Of(o.store), Status: func() (s consumer.Status) { return s },
		Totals: func() (t handlers.Totals) { return t }})
	return "http://" + server.Addr().String() + "/api/v1"
}

// ask sends a request and gives the answer, laid out as --json is.
func (o *office) ask(method, address, body string) string {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.t.Context(), method, address, strings.NewReader(body))
	require.NoError(o.t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(o.t, err)
	defer func() { require.NoError(o.t, response.Body.Close()) }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(o.t, err)
	require.Equal(o.t, http.StatusOK, response.StatusCode, "%s %s: %s", method, address, answer)
	var laidOut bytes.Buffer
	require.NoError(o.t, json.Indent(&laidOut, answer, "", "  "))
	return laidOut.String()
}

// moment matches what is another one each time that it is asked for.
var moment = regexp.MustCompile(`(?m)^  "(now|at|scopes_at|used_bytes)": .*$`)

func requireSame(t *testing.T, cli, api, what string) {
	t.Helper()
	require.NotEmpty(t, cli, what)
	require.Equal(t, moment.ReplaceAllString(cli, "$1"), moment.ReplaceAllString(api, "$1"), what)
}

func TestCommandLineAndAPIAnswerTheSame(t *testing.T) {
	o := newOffice(t)
	headers := []dedup.Header{{Key: "bin", Value: []byte{0, 0xff}}, {Key: "none"}, {Key: "empty", Value: []byte{}}}
	o.add("died", dedup.Dead, dedup.Message{Key: []byte("k"), Value: []byte{0xff}, Headers: headers})
	o.add("waits", dedup.Parked, dedup.Message{Value: []byte("\u202e<é>")})
	o.add("done", dedup.Processed, dedup.Message{RawTimestamp: 1764300000000000})
	o.add("done", dedup.Processed, dedup.Message{Value: []byte(`{"a":1}`)})
	api := o.api()
	_, err := operate.Of(o.store).Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: "orders"},
		operate.By{Actor: "ann", Why: "migration"})
	require.NoError(t, err)
	for command, path := range map[string]string{
		"dead list":                         "/dead-letters?content=true",
		"inbox list --status dead":          "/messages?status=dead&content=true",
		"inbox list --status pending":       "/messages?status=pending&content=true",
		"inbox list --status processed":     "/messages?status=processed&content=true",
		"inbox list --status failed":        "/messages?status=failed&content=true",
		"inbox show waits":                  "/messages?status=pending&content=true&id=waits",
		"dead show died":                    "/dead-letters?content=true&id=died",
		"conflicts list":                    "/conflicts?content=true",
		"explain waits":                     "/explain?id=waits",
		"explain done":                      "/explain?id=done",
		"explain orders/0/0":                "/explain?topic=orders&partition=0&offset=0",
		"pause list":                        "/pauses",
		"size":                              "/size",
		"dead list --limit 1 --tenant none": "/dead-letters?content=true&limit=1&tenant=none",
	} {
		stdout, _ := o.run(exitOK, append(strings.Fields(command), "--json")...)
		requireSame(t, stdout, o.ask(http.MethodGet, api+path, ""), command)
	}
	one := o.ask(http.MethodGet, api+"/dead-letters/book/died", "")
	stdout, _ := o.run(exitOK, "dead", "show", "died", "--json")
	require.Contains(t, strings.Join(strings.Fields(stdout), ""), strings.Join(strings.Fields(one), ""))
}

func TestCommandLineAndAPIAnswerChangesTheSame(t *testing.T) {
	o := newOffice(t)
	for _, id := range []string{"a", "b", "c"} {
		o.add(id, dedup.Dead, dedup.Message{})
	}
	api := o.api()
	dead := func(path, body string) string { return o.ask(http.MethodPost, api+"/dead-letters"+path, body) }
	run := func(args ...string) string {
		stdout, _ := o.run(exitOK, append(args, "--json")...)
		return stdout
	}
	requireSame(t, run("dead", "redrive", "--all", "--dry-run"),
		dead("/redrive", `{"all":true,"dry_run":true}`), "count")
	requireSame(t, run("dead", "redrive", "--id", "a", "--why", "x"),
		dead("/redrive", `{"ids":["b"],"why":"x"}`), "redrive")
	o.add("d", dedup.Dead, dedup.Message{})
	requireSame(t, run("dead", "discard", "--id", "c", "--why", "x", "--yes"),
		dead("/discard", `{"ids":["d"],"why":"x"}`), "discard")
	for _, again := range []string{"first", "again"} {
		first := run("pause", "topic", "orders", "--why", "x")
		if again == "first" {
			run("resume", "topic", "orders", "--why", "x")
		}
		requireSame(t, first,
			o.ask(http.MethodPost, api+"/pauses", `{"kind":"topic","name":"orders","why":"x"}`), again)
	}
	resumed := run("resume", "topic", "orders", "--why", "x")
	run("pause", "topic", "orders", "--why", "x")
	query := url.Values{"kind": {"topic"}, "name": {"orders"}, "why": {"x"}}
	requireSame(t, resumed, o.ask(http.MethodDelete, api+"/pauses?"+query.Encode(), ""), "resume")
}
