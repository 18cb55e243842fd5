package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/argtext"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestStatusAndPartitionsTellHowTheProcessIs(t *testing.T) {
	s := newStage(t, nil)
	status := s.get(prefix + "/status")
	require.Equal(t, []any{"v1", "billing", "orders-inbox", "consuming", 3.0, 2.0, 4.0},
		[]any{status.at("version"), status.at("group"), status.at("inbox"), status.at("state"),
			status.at("generation"), status.at("partitions"), status.at("lag")})
	require.EqualValues(t, 90, status.at("totals.handled"))
	partitions := s.get(prefix + "/partitions")
	require.Equal(t, []any{5.0, 4.0, 9.0, 4.0},
		[]any{partitions.at("partitions.0.next_offset"), partitions.at("partitions.0.committed_offset"),
			partitions.at("partitions.0.end_offset"), partitions.at("partitions.0.lag")})
	require.Nil(t, partitions.at("partitions.1.next_offset"), "not acquired yet")
	require.Contains(t, string(partitions.body), `"next_offset":null`)
}

func TestHistoryHasASampleOfTheStart(t *testing.T) {
	s := newStage(t, nil)
	s.refused(http.StatusNotFound, http.MethodGet, "/ui/", "") // nobody has asked for a page
	require.Eventually(t, func() bool { return s.get(prefix+"/history").at("samples.0") != nil }, 3*time.Minute, time.Millisecond)
	require.EqualValues(t, 10, s.get(prefix+"/history").at("every_seconds"))
}

func TestMessagesAreListedByStatusInPages(t *testing.T) {
	s := newStage(t, nil)
	for n := range 3 {
		for _, status := range operate.Statuses {
			s.add(fmt.Sprintf("%s-%d", status, n), status, dedup.Message{Key: []byte("k"), Value: []byte(`{"a":1}`)})
		}
	}
	for _, status := range operate.Statuses {
		first := s.get(prefix + "/messages" + values("status", string(status), "limit", "2"))
		require.Equal(t, fmt.Sprintf("%s-2", status), first.at("messages.0.raw_id"))
		require.Equal(t, string(status), first.at("messages.1.status"))
		require.Nil(t, first.at("messages.0.content"))
		require.Nil(t, first.at("messages.2"))
		second := s.get(prefix + "/messages" + values("status", string(status), "limit", "2",
			"cursor", first.at("next").(string)))
		require.Equal(t, fmt.Sprintf("%s-0", status), second.at("messages.0.raw_id"))
		require.Nil(t, second.at("next"))
		require.Nil(t, second.at("messages.1"))
		one := s.get(prefix + "/messages" + values("status", string(status), "id", fmt.Sprintf("%s-1", status),
			"content", "true", "handler", "book", "topic", "orders", "key", "k", "since", "1h"))
		require.Equal(t, `{"a":1}`, one.at("messages.0.content.value.text"))
		require.Nil(t, one.at("messages.1"))
		none := s.get(prefix + "/messages" + values("status", string(status), "until", "2001-01-01"))
		require.JSONEq(t, `{"messages":[],"next":null}`, string(none.body))
	}
	dead := s.get(prefix + "/dead-letters" + values("reason", "attempts_exhausted", "limit", "1"))
	require.Equal(t, "no such account", dead.at("messages.0.error"))
	require.NotNil(t, dead.at("next"))
	failed := s.get(prefix + "/messages?status=failed")
	require.NotNil(t, failed.at("messages.0.due_at"))
}

func TestContentTellsNullFromEmptyTextFromBytesAndIsCut(t *testing.T) {
	s := newStage(t, nil)
	large := bytes.Repeat([]byte("ä"), singleBytes/2+10)
	s.add("a b/c", operate.StatusDead, dedup.Message{Key: []byte{},
		Value: large, Tenant: "blue", Headers: []dedup.Header{{Key: "trace", Value: []byte("x")},
			{Key: "trace"}, {Key: "bin", Value: []byte{0, 0xff}}}})
	one := s.get(prefix + "/dead-letters/book/a%20b%2Fc" + values("tenant", "blue"))
	require.Equal(t, map[string]any{"text": "", "bytes": 0.0, "cut": false}, one.at("content.key"))
	require.Equal(t, map[string]any{"key": "trace", "value": nil}, one.at("content.headers.1"))
	require.Equal(t, map[string]any{"base64": "AP8=", "bytes": 2.0, "cut": false}, one.at("content.headers.2.value"))
	require.Equal(t, []any{true, float64(len(large))},
		[]any{one.at("content.value.cut"), one.at("content.value.bytes")})
	require.Equal(t, string(large[:singleBytes]), one.at("content.value.text"))
	listed := s.get(prefix + "/dead-letters?content=true")
	require.Len(t, listed.at("messages.0.content.value.text"), listedBytes)
	s.add("tombstone", operate.StatusDead, dedup.Message{})
	require.Contains(t, string(s.get(prefix+"/dead-letters/book/tombstone").body), `"value":null`)
	p := s.refused(http.StatusNotFound, http.MethodGet, prefix+"/dead-letters/book/nobody", "")
	require.Contains(t, p.Detail, "explain")
}

// What is read as a time is one by the document too, which huma holds a body against.
func TestTimesOfBodiesAreThoseOfQueries(t *testing.T) {
	s := newStage(t, nil)
	for _, text := range []string{"", "0", "2h", "+1h30m", "1.5h", ".5s", "10µs", "2026-03-01T04:05:06Z",
		"2026-03-01t04:05:06.5+01:00", "2026-03-01T04:05:06", "2026-03-31 04:05:06.25", "2028-02-29 04:05", "2026-12-31",
		"-2h", "yesterday", "2026-13-01", "2h ago", "2026-03-01T24:00", "0001-01-01"} {
		_, err := argtext.Time(text, time.Now())
		status := http.StatusOK
		if err != nil {
			status = http.StatusBadRequest
		}
		s.ask(status, http.MethodGet, prefix+"/dead-letters?since="+url.QueryEscape(text), "")
		body, err := json.Marshal(map[string]any{"topic": "orders", "until": text, "dry_run": true})
		require.NoError(t, err)
		s.ask(status, http.MethodPost, prefix+"/dead-letters/redrive", string(body))
	}
}

func TestRedriveAndDiscardArePickedCountedAndWrittenDown(t *testing.T) {
	s := newStage(t, nil)
	for n := range 4 {
		s.add(fmt.Sprint("order-", n), operate.StatusDead, dedup.Message{Key: []byte{byte(n), 0xff}})
	}
	post := func(status int, path, body string) reply {
		return s.ask(status, http.MethodPost, prefix+path, body, "X-Actor", "ann")
	}
	require.JSONEq(t, `{"action":"redrive","messages":4,"dry_run":true}`,
		string(post(200, "/dead-letters/redrive", `{"all":true,"dry_run":true}`).body))
	require.JSONEq(t, `{"action":"redrive","messages":1,"dry_run":false}`,
		string(post(200, "/dead-letters/redrive", `{"ids":["order-1"],"why":"mended"}`).body))
	require.JSONEq(t, `{"action":"discard","messages":1,"dry_run":false}`,
		string(post(200, "/dead-letters/discard", `{"key":{"base64":"Av8="},"why":"a test"}`).body))
	require.JSONEq(t, `{"action":"redrive","messages":0,"dry_run":false}`,
		string(post(200, "/dead-letters/redrive", `{"ids":["order-1"],"why":"again"}`).body))
	require.Len(t, s.get(prefix+"/dead-letters").at("messages"), 2)
	require.EqualValues(t, 1, s.get(prefix+"/backlog").at("handlers.0.pending"))
	for body, parameter := range map[string]string{`{}`: "all", `{"why":"x"}`: "all",
		`{"all":true,"topic":"orders","why":"x"}`: "all", `{"topic":"orders"}`: "why",
		`{"topics":"orders","why":"x"}`: "topics", `{"all":"yes","why":"x"}`: "all", `{"ids":["x"],"why":" "}`: "why",
		`{"since":"yesterday","why":"x"}`: "since",
		`{"All":true,"why":"x"}`:          "All", `{"ids":["x",7],"why":"x"}`: "ids[1]", `{"":1}`: "",
		`{"key":{"txt":"k"},"why":"x"}`: "key.txt", `{"key":{"text":7},"why":"x"}`: "key.text",
		`{"key":"k","why":"x"}`: "key",
		`{"key":{},"why":"x"}`:  "key", `{"key":{"base64":"!"},"why":"x"}`: "key.base64",
		`{"key":{"text":"k","base64":"aw=="},"why":"x"}`: "key",
		`{"topic":"a\u0000","why":"x"}`:                  "topic", `{"all":true,"topic":null,"why":"x"}`: "topic",
		`{"all":true,"key": null,"why":"x"}`: "key"} {
		p := s.refused(http.StatusBadRequest, http.MethodPost, prefix+"/dead-letters/redrive", body)
		require.Equal(t, parameter, p.Parameter, "%s: %s", body, p.Detail)
	}
	require.Contains(t, s.refused(400, http.MethodPost, prefix+"/dead-letters/discard",
		`{"handlr":"x","why":"x"}`).Detail, "did you mean handler?")
	require.Contains(t, s.refused(400, http.MethodPost, prefix+"/dead-letters/discard",
		`{"all":"yes","why":"x"}`).Detail, "type boolean")
	s.ask(200, http.MethodPost, prefix+"/dead-letters/discard", `{"all":true,"dry_run":true}`,
		"Content-Type", "Application/JSON; charset=utf-8")
	for _, body := range []string{`[]`, `null`, `{"all":true`, `{} {}`, "\xff"} {
		s.refused(http.StatusBadRequest, http.MethodPost, prefix+"/dead-letters/redrive", body)
	}
	audit := s.get(prefix + "/audit" + values("action", "discard"))
	require.Equal(t, []any{"local (ann)", "a test", "book"},
		[]any{audit.at("audit.0.actor"), audit.at("audit.0.why"), audit.at("audit.0.handler")})
	require.Nil(t, audit.at("audit.1"))
}

func TestPausesAreSetListedAndEnded(t *testing.T) {
	s := newStage(t, nil)
	for _, body := range []string{`{"kind":"topic","name":"orders","why":"migration"}`,
		`{"kind":"partition","name":"orders/3","why":"migration"}`,
		`{"kind":"handler","name":"book","why":"ledger"}`} {
		require.Equal(t, true, s.ask(200, http.MethodPost, prefix+"/pauses", body).at("changed"))
		require.Equal(t, false, s.ask(200, http.MethodPost, prefix+"/pauses", body).at("changed"))
	}
	list := s.get(prefix + "/pauses")
	require.Equal(t, []any{"book", "orders/3", "orders"},
		[]any{list.at("pauses.0.name"), list.at("pauses.1.name"), list.at("pauses.2.name")})
	require.Equal(t, []any{"local", "ledger"}, []any{list.at("pauses.0.actor"), list.at("pauses.0.why")})
	require.Equal(t, true, s.ask(200, http.MethodDelete,
		prefix+"/pauses"+values("kind", "partition", "name", "orders/3", "why", "done"), "").at("changed"))
	require.Equal(t, false, s.ask(200, http.MethodDelete,
		prefix+"/pauses"+values("kind", "partition", "name", "orders/3", "why", "done"), "").at("changed"))
	require.Len(t, s.get(prefix+"/pauses").at("pauses"), 2)
	require.Equal(t, "why",
		s.refused(400, http.MethodDelete, prefix+"/pauses"+values("kind", "topic", "name", "orders"), "").Parameter)
	require.Equal(t, "kind", s.refused(400, http.MethodDelete,
		prefix+"/pauses"+values("kind", "topics", "name", "orders", "why", "x"), "").Parameter)
	require.Equal(t, "name",
		s.refused(400, http.MethodPost, prefix+"/pauses", `{"kind":"partition","name":"orders","why":"x"}`).Parameter)
	for body, parameter := range map[string]string{`{"kind":"topic","name":"orders"}`: "why",
		`{"name":"orders","why":"x"}`: "kind", `{"kind":"topics","name":"orders","why":"x"}`: "kind",
		`{"kind":"topic","name":7,"why":"x"}`: "name", `{"kind":null,"name":"orders","why":"x"}`: "kind",
		`{"Kind":"topic","name":"orders","why":"x"}`: "Kind", `{"knd":"topic","name":"orders","why":"x"}`: "knd"} {
		require.Equal(t, parameter, s.refused(400, http.MethodPost, prefix+"/pauses", body).Parameter, body)
	}
	require.Equal(t, "is required: one of topic, partition, handler",
		s.refused(400, http.MethodPost, prefix+"/pauses", `{"name":"orders","why":"x"}`).Detail)
	require.Equal(t, "topics is none of topic, partition, handler",
		s.refused(400, http.MethodPost, prefix+"/pauses", `{"kind":"topics","name":"orders","why":"x"}`).Detail)
	require.Equal(t, "is required: what for; kept in the audit",
		s.refused(400, http.MethodDelete, prefix+"/pauses?kind=topic&name=orders", "").Detail)
	s.refused(400, http.MethodPost, prefix+"/pauses", " ")
	require.Equal(t, "partition orders/3", s.get(prefix+"/audit?action=resume").at("audit.0.subject"))
	require.Contains(t, s.get("/healthz").at("checks.7.reason"), "handler book")
}

func TestConflictsExplainBacklogAndSizeAnswer(t *testing.T) {
	s := newStage(t, nil)
	id := s.add("order-1", operate.StatusFailed, dedup.Message{Value: []byte("a")})
	s.add("order-1", operate.StatusProcessed, dedup.Message{Value: []byte("b")})
	conflicts := s.get(prefix + "/conflicts?content=true&limit=1")
	require.Equal(t, []any{id.String(), "b"},
		[]any{conflicts.at("conflicts.0.id"), conflicts.at("conflicts.0.content.value.text")})
	require.Nil(t, s.get(prefix+"/conflicts").at("conflicts.0.content"))
	for _, query := range []string{"?id=order-1", "?topic=orders&partition=0&offset=0&since=1h"} {
		e := s.get(prefix + "/explain" + query)
		require.Equal(t, []any{"book", "failed", 1.0},
			[]any{e.at("seen.0.handler"), e.at("seen.0.message.status"), e.at("seen.0.conflicts.0.offset")}, query)
		require.NotEmpty(t, e.at("sentences"))
		require.NotNil(t, e.at("seen.0.lane.due_at"))
	}
	require.Contains(t, s.get(prefix+"/explain?id=nobody").at("sentences.0"), "never seen")
	for query, parameter := range map[string]string{"": "id", "?id=a&topic=b": "id", "?topic=orders": "topic",
		"?topic=orders&partition=-2&offset=1":         "partition",
		"?topic=orders&partition=4294967296&offset=1": "partition", "?topic=orders&partition=&offset=1": "partition",
		"?id=": "id", "?id=a&id=b": "id"} {
		require.Equal(t, parameter, s.refused(400, http.MethodGet, prefix+"/explain"+query, "").Parameter, query)
	}
	keyed := s.get(prefix+"/explain?topic=orders", "Idempotency-Key", `"order-1"`)
	require.Equal(t, []any{"book", []any{}}, []any{keyed.at("seen.0.handler"), keyed.at("requests")})
	for query, parameter := range map[string]string{"?id=order-1": "Idempotency-Key", "?tenant=acme": "tenant"} {
		headers := []string{"Idempotency-Key", "order-1"}
		if parameter == "tenant" {
			headers = nil
		}
		require.Equal(t, parameter, s.refused(400, http.MethodGet, prefix+"/explain"+query, "", headers...).Parameter, query)
	}
	p := s.refused(400, http.MethodGet, prefix+"/explain", "", "Idempotency-Key", `"unclosed-secret`)
	require.Equal(t, "Idempotency-Key", p.Parameter)
	require.NotContains(t, p.Detail+s.logged(), "secret")
	backlog := s.get(prefix + "/backlog")
	require.Equal(t, []any{"book", 1.0, false},
		[]any{backlog.at("handlers.0.handler"), backlog.at("handlers.0.failed"), backlog.at("handlers.0.capped")})
	require.Equal(t, "message_dedup", s.get(prefix+"/size").at("tables.0.name"))
}

func TestWrongParametersAreNamedWithWhatToDo(t *testing.T) {
	s := newStage(t, nil)
	for query, want := range map[string][2]string{
		"?status=dead&topicc=x":                                {"topicc", "did you mean topic?"},
		"?status=dead&zzz=x":                                   {"zzz", "there are status, topic"},
		"?status=lost":                                         {"status", "pending, failed, processed, dead"},
		"":                                                     {"status", "is required"},
		"?status=dead&limit=0":                                 {"limit", "1 to 1000"},
		"?status=dead&limit=1001":                              {"limit", "1 to 1000"},
		"?status=dead&content=true&limit=101":                  {"limit", "1 to 100"},
		"?status=dead&content=yes":                             {"content", "true nor false"},
		"?status=dead&since=yesterday":                         {"since", "duration like 2h"},
		"?status=dead&topic=a&topic=b":                         {"topic", "2 times"},
		"?status=dead&key=%5Cx0":                               {"key", "hex"},
		"?status=dead&id=" + strings.Repeat("x", 1025):         {"id", "1024"},
		"?status=dead&topic=%00":                               {"topic", "null"},
		"?status=dead&since=" + strings.Repeat("1h", 513):      {"since", "1024"},
		"?status=dead&topic=%ff":                               {"topic", "UTF-8"},
		"?status=dead&id=00000000-0000-0000-0000-000000000000": {"id", "can't be the ID"},
		"?status=dead&cursor=zzz":                              {"cursor", "begin again"},
		"?status=processed&reason=x":                           {"reason", "none"},
		"?status=dead&id=":                                     {"id", "can't be the ID"},
		"?status=dead&limit=many":                              {"limit", "many is not a number from 1 to 1000"},
		"?status=dead&limit=":                                  {"limit", "1 to 1000"},
		"?status=dead&content=1":                               {"content", "true nor false"},
		"?status=dead&=x":                                      {"", "there are status, topic"},
		"?status=dead&zzz=x&aaa=x":                             {"aaa", "there are status, topic"},
	} {
		p := s.refused(http.StatusBadRequest, http.MethodGet, prefix+"/messages"+query, "")
		require.Equal(t, want[0], p.Parameter, "%s: %s", query, p.Detail)
		require.Contains(t, p.Detail, want[1], query)
	}
	s.refused(http.StatusBadRequest, http.MethodGet, prefix+"/messages?status=%zz", "")
	require.Contains(t, s.refused(400, http.MethodGet, prefix+"/status?x=1", "").Detail, "there are none")
}

func TestWhatIsNotThereIs404AndAWrongMethod405(t *testing.T) {
	s := newStage(t, nil)
	for _, path := range []string{prefix + "/nothing", prefix, prefix + "/dead-letters/book", "/",
		"/status", prefix + "/status/"} {
		s.refused(http.StatusNotFound, http.MethodGet, path, "")
	}
	for path, allow := range map[string]string{"/pauses": "DELETE, GET, HEAD, POST", "/status": "GET, HEAD",
		"/dead-letters/redrive": "POST"} {
		answer := s.ask(http.StatusMethodNotAllowed, http.MethodPut, prefix+path, "")
		require.Equal(t, allow, answer.Header.Get("Allow"))
	}
	require.Empty(t, s.ask(200, http.MethodHead, prefix+"/status", "").body)
	require.Equal(t, "up 1\n", string(s.get("/metrics").body))
	s.refused(http.StatusMethodNotAllowed, http.MethodPost, "/livez", "")
	for _, path := range []string{"/docs", prefix + "/docs", prefix + "/openapi.yaml",
		prefix + "/schemas/Message.json"} {
		s.refused(http.StatusNotFound, http.MethodGet, path, "") // huma would serve them, with scripts from elsewhere
	}
	s.refused(http.StatusUnsupportedMediaType, http.MethodPost, prefix+"/pauses", `{}`, "Content-Type", "text/plain")
	header := s.get(prefix + "/status").Header
	require.Equal(t, []string{"no-store", "nosniff"},
		[]string{header.Get("Cache-Control"), header.Get("X-Content-Type-Options")})
}

func TestWhatFailsInsideIsLoggedAndNotTold(t *testing.T) {
	s := newStage(t, nil)
	_, err := s.db.Pool.Exec(t.Context(), `drop table firstseen.pauses`)
	require.NoError(t, err)
	p := s.refused(http.StatusInternalServerError, http.MethodGet, prefix+"/pauses", "")
	require.NotEmpty(t, p.Request)
	require.NotContains(t, p.Detail, "relation")
	s.server.Stop() // no more is logged
	require.Contains(t, s.logged(), p.Request)
	require.Contains(t, s.logged(), `relation \"firstseen.pauses\" does not exist`)
}

func TestLoginThatMayNotChangeIsToldWhatToGrant(t *testing.T) {
	s := newStage(t, nil)
	role := "looks_" + s.db.Pool.Config().ConnConfig.Database
	_, err := s.db.Pool.Exec(t.Context(), fmt.Sprintf(`create role %[1]s; grant usage on schema firstseen to %[1]s; grant select on all tables in schema firstseen to %[1]s;
		revoke execute on all functions in schema firstseen from public`, role))
	require.NoError(t, err)
	conf := s.db.Pool.Config().Copy()
	conf.ConnConfig.RuntimeParams["role"] = role
	pool, err := pgxpool.NewWithConfig(t.Context(), conf)
	require.NoError(t, err)
	defer pool.Close()
	inbox, err := operate.Open(t.Context(), pool, dedup.Config{Inbox: "orders-inbox"})
	require.NoError(t, err)
	parts := s.parts()
	parts.Inbox = inbox
	s.service.Attach(parts)
	s.get(prefix + "/pauses")
	p := s.refused(http.StatusForbidden, http.MethodPost, prefix+"/pauses", newPauseOK)
	require.Contains(t, p.Detail, "firstseen_operator")
}

func TestPanicOfARequestIsAnswered(t *testing.T) {
	s := unstarted(t, nil)
	w := httptest.NewRecorder()
	s.server.api.survive(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") })).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.NotContains(t, w.Body.String(), "secret")
	require.Contains(t, s.logged(), "panic: secret")
}

func TestBodyOfAChangeIsBounded(t *testing.T) {
	s := unstarted(t, nil)
	s.start()
	body, err := json.Marshal(Change{Why: strings.Repeat("x", maxBody<<20)})
	require.NoError(t, err)
	s.refused(http.StatusRequestEntityTooLarge, http.MethodPost, prefix+"/dead-letters/redrive", string(body))
}

func TestLettersWithoutAnIDAreNotRedriven(t *testing.T) {
	s := newStage(t, nil)
	s.add("none", operate.StatusDead, dedup.Message{})
	_, err := s.db.Pool.Exec(t.Context(), `update firstseen.dead_letters set reason = 'missing_id'`)
	require.NoError(t, err)
	s.add("ill", operate.StatusDead, dedup.Message{})
	p := s.refused(http.StatusConflict, http.MethodPost, prefix+"/dead-letters/redrive", `{"all":true,"dry_run":true}`)
	require.Contains(t, p.Detail, "1 dead letter without a message ID can't be redriven")
	require.Contains(t, p.Detail, "would be redriven: 1")
	p = s.refused(http.StatusConflict, http.MethodPost, prefix+"/dead-letters/redrive", `{"all":true,"why":"mended"}`)
	require.Contains(t, p.Detail, "redriven: 1")
}
