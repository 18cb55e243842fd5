package main

import (
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestUIServesThePageOfAProgramElsewhereToThisMachineOnly(t *testing.T) {
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer a-token-for-readers":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{}`)
		case r.URL.Path == "/below/api/v1/access":
			_, _ = io.WriteString(w, `{"client":"read token"}`)
		default:
			_, _ = io.WriteString(w, `{"pauses":[{"kind":"topic","name":"orders","why":"incident 482"}]}`)
		}
	}))
	t.Cleanup(program.Close)
	target, err := url.Parse(program.URL + "/below")
	require.NoError(t, err)
	handler, err := uiHandler(target)
	require.NoError(t, err)
	ask := func(method, path, host, body, cookie string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Host = host
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Cookie", cookie)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	require.Equal(t, http.StatusForbidden, ask(http.MethodGet, "/ui/pauses", "evil.example", "", "").Code)
	require.Equal(t, http.StatusUnauthorized, ask(http.MethodGet, "/ui/pauses", "127.0.0.1:5", "", "").Code)
	signedIn := ask(http.MethodPost, "/ui/signin", "localhost:5", "token=a-token-for-readers", "")
	require.Equal(t, http.StatusSeeOther, signedIn.Code, signedIn.Body.String())
	cookie := signedIn.Result().Cookies()[0].String()
	require.Contains(t, ask(http.MethodGet, "/ui/pauses", "[::1]:5", "", cookie).Body.String(), "incident 482")
	program.Close()
	gone := ask(http.MethodGet, "/ui/pauses", "localhost", "", cookie)
	require.Equal(t, http.StatusBadGateway, gone.Code)
	require.Contains(t, gone.Body.String(), "does not answer")
}

func TestUIRefusesWrongAddresses(t *testing.T) {
	t.Chdir(t.TempDir())
	for want, args := range map[string][]string{"--url": {"--url", "consumer:8080"}, "credentials": {"--url", "http://a:b@c"},
		"--listen": {"--url", "http://consumer:8080", "--listen", ":8080"}, "postgres.dsn": nil,
		"for a database": {"--url", "http://consumer:8080", "--as", "ann"}, "can be printed": {"--dsn", "postgres://h/d", "--as", "a\tb"}} {
		_, stderr, code := command(t, append([]string{"ui"}, args...)...)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, want)
	}
}

var opens = regexp.MustCompile(`http://(\S+)/ui/start\?key=([0-9a-f]{64}) until`)

// visitor is a browser with cookies, who follows redirects.
type visitor struct {
	t      *testing.T
	client *http.Client
	base   string
}

func (v *visitor) get(path string) (status int, body string) {
	v.t.Helper()
	return v.read(v.client.Get(v.base + path))
}

func (v *visitor) post(path string, form url.Values) (status int, body string) {
	v.t.Helper()
	return v.read(v.client.PostForm(v.base+path, form))
}

func (v *visitor) read(response *http.Response, err error) (status int, body string) {
	v.t.Helper()
	require.NoError(v.t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(v.t, err)
	return response.StatusCode, string(content)
}

func newVisitor(t *testing.T, base string) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return &visitor{t, client, base}
}

func TestUIServesAnInboxThatNoProcessWorksOn(t *testing.T) {
	s := newShop(t, booking)
	store, err := dedup.Open(t.Context(), s.db.Pool, dedup.Config{Inbox: s.group})
	require.NoError(t, err)
	inbox := operate.Of(store)
	job, _, err := inbox.CreateJob(t.Context(), operate.NewJob{ID: uuid.New(), Kind: operate.JobDiscard}, operate.By{Actor: "ann", Why: "x"})
	require.NoError(t, err)
	_, err = s.db.Pool.Exec(t.Context(), `update firstseen.jobs set created_at = now() - interval '1 minute'`)
	require.NoError(t, err)
	p := start(t, s.config(s.db.DSN), "ui", "--as", "eve@desk")
	address := p.logged(opens)
	key := opens.FindStringSubmatch(p.log.String())[2]
	v := newVisitor(t, "http://"+address)
	status, body := v.get("/ui/")
	require.Equal(t, http.StatusUnauthorized, status, body)
	status, _ = v.get("/ui/start?key=" + strings.Repeat("0", 64))
	require.Equal(t, http.StatusForbidden, status)
	status, body = v.get("/ui/start?key=" + key)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "no process is asked")
	for _, unknown := range []string{"Does it keep up?", "All is well", "<dt>kafka", "<dt>held", "<dt>failure_ratio"} {
		require.NotContains(t, body, unknown)
	}
	require.Contains(t, body, "Nothing wrong is seen in Postgres")
	require.Contains(t, body, "eve@desk")
	status, _ = newVisitor(t, v.base).get("/ui/start?key=" + key) // once
	require.Equal(t, http.StatusForbidden, status)
	status, _ = newVisitor(t, v.base).get("/api/v1/pauses") // of the page only
	require.Equal(t, http.StatusNotFound, status)

	_, body = v.get("/ui/job?id=" + job.ID.String())
	require.Contains(t, body, "no process works on jobs of this inbox")
	v.pause(t, "book")
	records, _, err := inbox.Audit(t.Context(), operate.AuditFilter{Action: "pause"}, "", 10)
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, "write token (eve@desk)", records[0].Actor)
	eventually(t, func() bool {
		_, body := v.get("/ui/doctor")
		return strings.Contains(body, "schema.version") && !strings.Contains(body, "http-equiv")
	})
	after, err := inbox.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.Equal(t, operate.JobQueued, after.State, "jobs are worked on by who consumes")
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.NotContains(t, p.log.String(), s.db.DSN)
}

// pause pauses a handler by the page's forms.
func (v *visitor) pause(t *testing.T, handler string) {
	t.Helper()
	_, page := v.get("/ui/pauses")
	form := regexp.MustCompile(`name="form" value="([0-9a-f]{64})"`).FindStringSubmatch(page)
	require.NotNil(t, form, page)
	_, confirm := v.post("/ui/confirm", url.Values{"form": {form[1]}, "do": {"pause"}, "of": {""}, "kind": {"handler"}, "name": {handler},
		"back": {"pauses"}})
	sent := url.Values{"why": {"incident 482"}}
	for _, input := range regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`).FindAllStringSubmatch(confirm, -1) {
		sent.Add(input[1], html.UnescapeString(input[2]))
	}
	status, done := v.post("/ui/apply", sent)
	require.Equal(t, http.StatusOK, status, done)
}
