package page_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/page"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestSignInLeadsBackToThePageThatWasAskedForAndNowhereElse(t *testing.T) {
	s := newStage(t, nil)
	for next, want := range map[string]string{
		"dead?handler=book&since=2h":     "dead?handler=book&since=2h",
		"letter?handler=b%26c&id=1":      "letter?handler=b%26c&id=1",
		"":                               "./",
		"https://evil.example/dead":      "./",
		"//evil.example/dead":            "./",
		"/dead":                          "./",
		`\\evil.example`:                 "./",
		"../other":                       "./",
		"javascript:alert(1)":            "./",
		"dead\r\nSet-Cookie: a=b":        "./",
		"signout":                        "./",
		"dead?x=%0d%0aSet-Cookie%3A+a=b": "dead?x=%0D%0ASet-Cookie%3A+a%3Db",
	} {
		a := s.browser().post("signin", "token", readToken, "next", next)
		require.Equal(t, http.StatusSeeOther, a.status, next)
		require.Equal(t, want, a.header.Get("Location"), next)
		require.Len(t, a.header.Values("Set-Cookie"), 1, next)
	}
}

func TestCookieIsOutOfReachForScriptsAndOtherSites(t *testing.T) {
	s := newStage(t, nil)
	cookieOf := func(host string) string {
		b := s.browser()
		b.header.Set("Host", host)
		a := b.post("signin", "token", readToken)
		require.Equal(t, http.StatusSeeOther, a.status)
		require.NotContains(t, a.header.Get("Set-Cookie"), readToken)
		return a.header.Get("Set-Cookie")
	}
	plain := cookieOf("localhost:8080")
	require.Regexp(t, `^firstseen_session=[A-Z2-7]{52}; HttpOnly; SameSite=Lax$`, plain,
		"no path: that of the form, below any path of a proxy")
	require.Contains(t, cookieOf("ops.example.com"), "; Secure", "behind a proxy that speaks TLS")
}

func TestWhoShowsNoTokenOrAWrongOneIsNotLetIn(t *testing.T) {
	s := newStage(t, nil)
	for _, token := range []string{"", "wrong", "a-token-for-readersx", "a token", "tökenöfreaders-abc"} {
		b := s.browser()
		require.Equal(t, http.StatusUnauthorized, b.post("signin", "token", token).status)
		require.Equal(t, http.StatusUnauthorized, b.get("dead").status)
	}
	require.Equal(t, http.StatusUnauthorized, s.browser().post("signin", "token", readToken, "actor", "a\u202eb").status)
}

func TestSessionEndsWithTheTokenAndBySigningOut(t *testing.T) {
	s := newStage(t, nil)
	b := s.signedIn(readToken, "")
	cookies := b.client.Jar.Cookies(mustURL(t, s.url("")))
	require.Len(t, cookies, 1)
	require.Equal(t, http.StatusSeeOther, b.post("signout").status)
	again := s.browser()
	again.header.Set("Cookie", cookies[0].String())
	require.Equal(t, http.StatusUnauthorized, again.get("dead").status, "the session is gone, not the cookie only")

	b = s.signedIn(readToken, "")
	b.read("dead")
	require.NoError(t, s.around.Apply(service.Settings{Access: service.Access{ReadToken: "another-token-for-readers",
		Rate: 10_000}}))
	require.Equal(t, http.StatusUnauthorized, b.get("dead").status)
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}

// A session ends an hour after it was last used, and twelve hours after it began; and there are not more than 200.
func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := page.New(page.Config{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Header.Get("Authorization") == "" {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = w.Write([]byte(`{}`))
		})})
		require.NoError(t, err)
		enter := func() string {
			r := httptest.NewRequest(http.MethodPost, "/signin", strings.NewReader("token=x"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			return w.Result().Cookies()[0].String()
		}
		status := func(cookie string) int {
			r := httptest.NewRequest(http.MethodGet, "/pauses", nil)
			r.Header.Set("Cookie", cookie)
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			return w.Code
		}
		idle, used := enter(), enter()
		for range 12 {
			time.Sleep(59 * time.Minute)
			require.Equal(t, http.StatusOK, status(used))
		}
		require.Equal(t, http.StatusUnauthorized, status(idle))
		time.Sleep(13 * time.Minute)
		require.Equal(t, http.StatusUnauthorized, status(used))

		first := enter()
		time.Sleep(time.Second)
		for range 200 {
			enter()
		}
		require.Equal(t, http.StatusUnauthorized, status(first))
	})
}

func TestReadersSeeNoButtonsAndMayNotPressThem(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1"})
	reader := s.signedIn(readToken, "")
	for _, page := range append(every, "letter?handler=book&id=order-1") {
		require.NotRegexp(t, `action="(confirm|apply)"|name="row"`, reader.read(page), page)
	}
	form := formOf(t, reader.read("requests"))
	row := url.Values{"handler": {"book"}, "tenant": {""}, "id": {s.idOf("order-1")}}.Encode()
	done := reader.post("apply", "form", form, "do", "discard", "row", row, "why", "because", "once", "1")
	require.Equal(t, http.StatusSeeOther, done.status)
	require.Contains(t, reader.read(done.header.Get("Location")), "may read and not change")
	require.Len(t, s.dead(), 1)
}

func TestFormsOfOthersChangeNothing(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1"})
	b := s.signedIn(writeToken, "")
	row := url.Values{"handler": {"book"}, "tenant": {""}, "id": {s.idOf("order-1")}}.Encode()
	own := formOf(t, b.read("dead"))
	fields := func(form string) []string {
		return []string{"form", form, "do", "discard", "row", row, "why", "because", "once", "1"}
	}
	others := formOf(t, s.signedIn(writeToken, "").read("dead"))
	for _, form := range []string{"", "0", others} {
		require.Equal(t, http.StatusForbidden, b.post("apply", fields(form)...).status)
	}
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		b.header = http.Header{name: {value}}
		require.Equal(t, http.StatusForbidden, b.post("apply", fields(own)...).status)
		require.Equal(t, http.StatusForbidden, b.post("signin", "token", writeToken).status)
		require.Equal(t, http.StatusForbidden, b.post("signout").status)
	}
	require.Equal(t, http.StatusMethodNotAllowed, s.browser().method(http.MethodDelete, "dead"))
	require.Len(t, s.dead(), 1)
	b.header = nil
	require.Equal(t, http.StatusSeeOther, b.post("apply", fields(own)...).status)
	require.Empty(t, s.dead())
}

// A proxy that signs people in sends a token of its own along, and who they are.
func TestProxySignsPeopleIn(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1"})
	b := s.browser()
	b.header = http.Header{"Authorization": {"Bearer " + writeToken}, "X-Actor": {"bea@example.com"}}
	page := b.read("dead")
	require.NotContains(t, page, "Sign out")
	row := url.Values{"handler": {"book"}, "tenant": {""}, "id": {s.idOf("order-1")}}.Encode()
	b.post("apply", "form", formOf(t, page), "do", "discard", "row", row, "why", "because", "once", "1")
	require.Contains(t, b.read("audit"), "write token (bea@example.com)")
}

func TestOnThisHostWithoutTokensNobodySignsInAndNoOtherHostIsLetIn(t *testing.T) {
	s := newStage(t, func(settings *service.Settings) {
		settings.Access.ReadToken, settings.Access.WriteToken = "", ""
	})
	s.add(letter{id: "order-1"})
	b := s.browser()
	require.Contains(t, b.read("dead"), `action="confirm"`)
	for name, value := range map[string]string{"Host": "evil.example", "X-Forwarded-For": "192.0.2.1"} {
		b.header = http.Header{name: {value}}
		a := b.get("dead")
		require.Equal(t, http.StatusForbidden, a.status)
		require.NotContains(t, a.body, "order-1")
	}
}

// Below a path that a proxy takes away again, addresses lead below it, and the session is of it.
func TestPageWorksBelowAPathOfAProxy(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1"})
	target := mustURL(t, "http://"+s.server.Addr().String())
	proxy := httptest.NewServer(http.StripPrefix("/ops/one", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }}))
	t.Cleanup(proxy.Close)
	b := s.browser()
	b.base = proxy.URL + "/ops/one/ui/"
	signedIn := b.post("signin", "token", readToken, "next", "dead?handler=book")
	require.Equal(t, "dead?handler=book", signedIn.header.Get("Location"))
	require.Contains(t, b.read(signedIn.header.Get("Location")), "order-1")
	b.base = proxy.URL + "/ops/two/ui/"
	require.Equal(t, http.StatusNotFound, b.get("dead").status)
	require.Empty(t, b.client.Jar.Cookies(mustURL(t, proxy.URL+"/ops/two/ui/")), "it is not for what lies beside")
}

// Who shows a certificate is let in by it: the API sees the connection's.
func TestAPIIsAskedWithTheVisitorsConnectionAndWithoutCookies(t *testing.T) {
	var asked *http.Request
	p, err := page.New(page.Config{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"client":"certificate ann"}`))
	})})
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, "https://example.com/pauses", nil)
	r.Header = http.Header{"Cookie": {"a=b"}, "Sec-Fetch-Site": {"same-origin"}, "X-Forwarded-For": {"192.0.2.1"}, "If-None-Match": {"x"}}
	p.ServeHTTP(httptest.NewRecorder(), r)
	require.Same(t, r.TLS, asked.TLS)
	require.Equal(t, r.RemoteAddr, asked.RemoteAddr)
	require.Equal(t, "example.com", asked.Host)
	require.Equal(t, http.Header{"Sec-Fetch-Site": {"same-origin"}, "X-Forwarded-For": {"192.0.2.1"}}, asked.Header)
}

// What the API answers that is no JSON, or not what was asked for, is no page; the log has why.
func TestAnAnswerThatIsNoneOfTheAPIsIsAFailure(t *testing.T) {
	log := &deduptest.Log{}
	kind := "application/json"
	p, err := page.New(page.Config{Logger: slog.New(slog.NewTextHandler(log, nil)),
		API: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write([]byte(`<b>{`))
		})})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pauses", nil))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.NotContains(t, w.Body.String(), "<b>{")
	require.Contains(t, log.String(), "/api/v1/access")
	kind = "text/html"
	w = httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pauses", nil))
	require.Equal(t, http.StatusBadGateway, w.Code)
	_, err = page.New(page.Config{})
	require.ErrorContains(t, err, "an API is required")
}

// dead are the dead letters that are left.
func (s *stage) dead() []operate.Listed {
	s.t.Helper()
	found, _, err := s.inbox.Messages(s.t.Context(), operate.Listing{Status: operate.StatusDead, Limit: 100})
	require.NoError(s.t, err)
	return found
}

func (b *browser) method(method, address string) int {
	b.s.t.Helper()
	r, err := http.NewRequestWithContext(b.s.t.Context(), method, b.s.url(address), nil)
	require.NoError(b.s.t, err)
	return b.do(r).status
}
