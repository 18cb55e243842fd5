package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

var takesIn = regexp.MustCompile(`ingress listens" address=(\S+)`)

// post posts a message to the program, with a token and a key.
func (p *program) post(topic, token, key, body string) (status int, answer string) {
	p.t.Helper()
	return p.askIngress(http.MethodPost, topic+"/messages", token, key, strings.NewReader(body))
}

// askIngress asks the program about a topic and its messages.
func (p *program) askIngress(method, path, token, key string, body io.Reader) (status int, answer string) {
	p.t.Helper()
	r, err := http.NewRequest(method, "http://"+p.logged(takesIn)+"/v1/topics/"+path, body)
	require.NoError(p.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(r)
	require.NoError(p.t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(content)
}

const shopToken = "a-token-for-the-shop"

func (s *shop) ingress() string {
	return "ingress: {listen: '127.0.0.1:0', tokens: {shop: " + shopToken + "}, topics: [" + s.topic + "]}\n"
}

func TestRunTakesMessagesInByHTTPOnceThoughTheyComeByKafkaToo(t *testing.T) {
	s := newShop(t, booking)
	p := start(t, s.config(s.db.DSN)+s.ingress(), "run")
	for range 3 {
		status, body := p.post(s.topic, shopToken, "7", `{"content":{"n":7}}`)
		require.Less(t, status, 300, body)
	}
	s.produce(0, 10) // 7 is among them
	eventually(t, func() bool { return s.booked() == 10 })
	status, body := p.post(s.topic, shopToken, "3", `{"content":{"n":3}}`)
	require.Equal(t, http.StatusOK, status, body)
	stdout, stderr, code := command(t, "explain", "--idempotency-key", "7", "--topic", s.topic, "--dsn", s.db.DSN)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, "No HTTP request with this key")
	require.Contains(t, stdout, "MessageEnqueued by shop: by HTTP")
	status, body = p.post(s.topic, "another", "11", `{"content":{}}`)
	require.Equal(t, http.StatusUnauthorized, status, body)
	status, body = p.post("elsewhere", shopToken, "11", `{"content":{}}`)
	require.Equal(t, http.StatusNotFound, status, body)
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.Equal(t, 10, s.booked())
	s.requireAllCommitted()
	require.NotContains(t, p.log.String(), shopToken)
}

func TestRunTakesNothingInUnlessItIsToldTo(t *testing.T) {
	s := newShop(t, booking)
	p := start(t, s.config(s.db.DSN), "run")
	s.produce(0, 1)
	eventually(t, func() bool { return s.booked() == 1 })
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.NotContains(t, p.log.String(), "ingress listens")
	closed := start(t, s.config(s.db.DSN)+"ingress: {listen: '127.0.0.1:0', topics: ["+s.topic+"]}\n", "run")
	require.Equal(t, exitUsage, closed.exit())
	require.Contains(t, closed.log.String(), "ingress.listen")
	require.Contains(t, closed.log.String(), "would be closed to everybody")
}

// A receiver that says when it was called, and answers when it is told to, shows each state of a message for as long as
// a client may look at it.
func TestMessageByHTTPIsQueuedForItsWebhookAndTellsItsStates(t *testing.T) {
	s := newShop(t, booking)
	called, answer := make(chan string, 10), make(chan int)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called <- r.Header.Get("Idempotency-Key")
		w.WriteHeader(<-answer)
	}))
	defer receiver.Close()
	defer close(answer)
	hook := fmt.Sprintf("{name: notify, webhook: {url: %q, allow_private: true}, retry: {base: 1ms, cap: 1ms}}",
		receiver.URL)
	config := strings.Replace(s.config(s.db.DSN), "{name: book, function: billing.book_order}", hook, 1)
	p := start(t, config+strings.Replace(s.ingress(), "topics:", "queued: ["+s.topic+"], topics:", 1), "run")
	status, first := p.post(s.topic, shopToken, "7", `{"content":{"n":7}}`)
	require.Equal(t, http.StatusAccepted, status, first)
	var accepted struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(first), &accepted))
	told := func() string {
		status, body := p.askIngress(http.MethodGet, s.topic+"/messages/"+accepted.ID, shopToken, "", nil)
		require.Equal(t, http.StatusOK, status, body)
		_, handlers, _ := strings.Cut(body, `"handlers":`)
		return handlers
	}
	require.Equal(t, accepted.ID, <-called)
	require.Contains(t, told(), `{"name":"notify","status":"pending","attempts":0,"reason":null}`)
	answer <- http.StatusInternalServerError
	require.Equal(t, accepted.ID, <-called)
	require.Contains(t, told(), `{"name":"notify","status":"failed","attempts":1,"reason":"failed"}`)
	answer <- http.StatusNoContent
	eventually(t, func() bool { return strings.Contains(told(), `{"name":"notify","status":"processed"`) })
	status, again := p.post(s.topic, shopToken, "7", `{"content":{"n":7}}`)
	require.Equal(t, []any{http.StatusAccepted, first}, []any{status, again})
	s.produce(7, 8) // the same by Kafka
	for partition := range int32(2) {
		consumertest.AwaitCommitted(t, s.addr, s.group, s.topic, partition,
			consumertest.EndOffset(t, s.addr, s.topic, partition))
	}
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.Empty(t, called)
}
