package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

// The servers of a program that is at work answer what their OpenAPI documents say, and whatever they are sent. Asked
// they are by schemathesis (FIRSTSEEN_TEST_SCHEMATHESIS is its path), from a fixed seed: see make openapi.
func TestServersAnswerAsTheirOpenAPIDocumentsSay(t *testing.T) {
	path := os.Getenv("FIRSTSEEN_TEST_SCHEMATHESIS")
	if path == "" {
		t.Skip("make openapi runs it")
	}
	s := newShop(t, `create function billing.book_order(m firstseen.message) returns void language plpgsql as $$ begin
		if convert_from(m.payload, 'UTF8') = 'fails' then raise 'fails' using errcode = '22000'; end if;
		insert into billing.booked values (m.id); end $$`)
	s.addr = consumertest.StartKafka(t).Addr
	consumertest.CreateTopic(t, s.addr, s.topic, 2)
	config := strings.Replace(s.config(s.db.DSN), "book_order}", "book_order, retry: {max_attempts: 1}}", 1)
	p := start(t, config+s.ingress()+"http: {listen: '127.0.0.1:0', rate: 10000, write_token: "+shopToken+"}\n", "run")
	s.produceOfAllKinds()
	eventually(t, func() bool { return s.booked() == 40 && s.dead() == 6 })
	ask(t, path, "ingress", "http://"+p.logged(takesIn), "/v1/openapi.json", s.topic)
	ask(t, path, "admin", "http://"+p.logged(listens), "/api/v1/openapi.json", s.topic)
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.NotContains(t, p.log.String(), "panic")
}

// ask has schemathesis ask a server whatever its document lets it.
func ask(t *testing.T, schemathesis, name, url, path, topic string) {
	t.Helper()
	asked, err := filepath.Abs(filepath.Join("..", "..", "testdata", "schemathesis"))
	require.NoError(t, err)
	scratch := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(scratch, "openapi.json"), fetched(t, url+path), 0o600))
	st := exec.CommandContext(t.Context(), schemathesis, "--no-color", "--config-file", filepath.Join(asked, name+".toml"),
		"run", "openapi.json", "--url", url)
	st.Dir = scratch
	st.Env = append(os.Environ(), "TOKEN="+shopToken, "TOPIC="+topic,
		"SCHEMATHESIS_HOOKS="+filepath.Join(asked, "hooks.py"), "PYTHONDONTWRITEBYTECODE=1")
	out, err := st.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err, name)
}

func fetched(t *testing.T, url string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+shopToken)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return body
}

func (s *shop) dead() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.Pool.QueryRow(s.t.Context(), `select count(*) from firstseen.dead_letters`).Scan(&n))
	return n
}

// produceOfAllKinds produces messages that take effect, that come again, with another content too, and that die.
func (s *shop) produceOfAllKinds() {
	s.t.Helper()
	s.produce(0, 40)
	s.produce(0, 5)
	records := []*kgo.Record{{Topic: s.topic, Value: []byte("no ID")}}
	for i := range 5 {
		records = append(records, &kgo.Record{Topic: s.topic, Key: []byte("k"), Value: []byte("fails"),
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(fmt.Sprint("dead-", i))}}})
		records = append(records, &kgo.Record{Topic: s.topic, Value: []byte("another"),
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(strconv.Itoa(i))}}})
	}
	consumertest.Produce(s.t, s.addr, records...)
}
