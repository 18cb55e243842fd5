package admin

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

const (
	readToken  = "read-0123456789abcdef"
	writeToken = "write-0123456789abcde" // as long as the other
	newPauseOK = `{"kind":"topic","name":"orders","why":"x"}`
)

func withTokens(s *stage) {
	s.settings.Access.ReadToken, s.settings.Access.WriteToken = readToken, writeToken
}

func TestTokensReadAndWrite(t *testing.T) {
	s := newStage(t, withTokens)
	s.add("order-1", operate.StatusDead, dedup.Message{})
	require.Len(t, readToken, len(writeToken))
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	s.get(prefix+"/status", bearer(readToken)...)
	s.get(prefix+"/status", bearer(writeToken)...)
	s.get(prefix+"/status", "Authorization", "bearer  "+readToken)
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer " + readToken[1:] + "x",
		"Bearer " + strings.ToUpper(readToken), "Bearer " + readToken + "x", "Bearer " + readToken[:len(readToken)-1],
		"Basic " + readToken, readToken} {
		answer := s.ask(http.StatusUnauthorized, http.MethodGet, prefix+"/status", "", "Authorization", header)
		require.Contains(t, answer.Header.Get("WWW-Authenticate"), "Bearer", header)
		require.NotContains(t, string(answer.body), readToken)
	}
	p := s.refused(http.StatusForbidden, http.MethodPost, prefix+"/pauses", newPauseOK, bearer(readToken)...)
	require.Contains(t, p.Detail, "read token may read and not change")
	s.refused(http.StatusForbidden, http.MethodPost, prefix+"/dead-letters/redrive",
		`{"all":true,"dry_run":true}`, bearer(readToken)...)
	s.refused(http.StatusForbidden, http.MethodDelete, prefix+"/pauses?x", "", bearer(readToken)...)
	s.ask(200, http.MethodPost, prefix+"/pauses", newPauseOK, append(bearer(writeToken), "X-Actor", "ann")...)
	s.ask(200, http.MethodPost, prefix+"/dead-letters/redrive", `{"all":true,"why":"mended"}`, bearer(writeToken)...)
	audit := s.get(prefix+"/audit", bearer(readToken)...)
	require.Equal(t, []any{"write token", "write token (ann)"},
		[]any{audit.at("audit.0.actor"), audit.at("audit.1.actor")})
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/metrics"} {
		s.get(path)
	}
	s.refused(http.StatusUnauthorized, http.MethodGet, prefix+"/openapi.json", "")
	s.refused(http.StatusUnauthorized, http.MethodGet, prefix+"/nothing", "")
	require.NotContains(t, s.logged(), readToken)
}

func TestAReadTokenAloneLetsNobodyChange(t *testing.T) {
	s := newStage(t, func(s *stage) { s.settings.Access.ReadToken = readToken })
	s.get(prefix+"/status", "Authorization", "Bearer "+readToken)
	s.refused(http.StatusForbidden, http.MethodPost, prefix+"/pauses", newPauseOK,
		"Authorization", "Bearer "+readToken)
	s.refused(http.StatusUnauthorized, http.MethodPost, prefix+"/pauses", newPauseOK)
	s.refused(http.StatusUnauthorized, http.MethodPost, prefix+"/pauses", newPauseOK, "Authorization", "Bearer ")
}

func TestWithoutTokensOnlyTheSameHostIsAdmitted(t *testing.T) {
	admitted := func(peer, host string, headers ...string) bool {
		r := httptest.NewRequest(http.MethodGet, prefix+"/status", nil)
		r.RemoteAddr, r.Host = peer, host
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		who, refused := identify(r, service.Access{})
		require.Equal(t, refused == nil, who.role == writer)
		return refused == nil
	}
	for _, peer := range []string{"127.0.0.1:5", "127.9.9.9:5", "[::1]:5", "[::ffff:127.0.0.1]:5"} {
		require.True(t, admitted(peer, "localhost:8080"), peer)
	}
	for _, peer := range []string{"10.0.0.1:5", "[fe80::1]:5", "[::ffff:10.0.0.1]:5",
		"0.0.0.0:5", "localhost:5", "", "@"} {
		require.False(t, admitted(peer, "localhost:8080"), peer)
		require.False(t, admitted(peer, "localhost:8080", "X-Forwarded-For", "127.0.0.1"), peer)
	}
	for _, host := range []string{"LOCALHOST", "localhost.:80", "127.0.0.1:8080", "[::1]:8080", "::1"} {
		require.True(t, admitted("127.0.0.1:5", host), host)
	}
	for _, host := range []string{"evil.example", "localhost.evil.example", "evil.example:8080", "10.0.0.1", "",
		"127.0.0.1.evil.example"} {
		require.False(t, admitted("127.0.0.1:5", host), host)
	}
	for _, header := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
		"Forwarded", "Via", "X-Real-IP"} {
		require.False(t, admitted("127.0.0.1:5", "localhost", header, "127.0.0.1"), header)
	}
}

func TestPagesOfABrowserOnTheSameHostAreRefused(t *testing.T) {
	s := newStage(t, nil)
	s.get(prefix + "/status")
	p := s.refused(http.StatusForbidden, http.MethodGet, prefix+"/status", "", "Host", "evil.example:80")
	require.Contains(t, p.Detail, "localhost")
	s.ask(200, http.MethodPost, prefix+"/pauses", newPauseOK)
	for _, origin := range []string{"http://evil.example", "http://localhost:3000", "null"} {
		s.refused(http.StatusForbidden, http.MethodPost, prefix+"/pauses", newPauseOK, "Origin", origin)
		s.refused(http.StatusForbidden, http.MethodDelete, prefix+"/pauses?kind=topic&name=orders&why=x",
			"", "Origin", origin)
	}
	s.refused(http.StatusForbidden, http.MethodPost, prefix+"/pauses", newPauseOK, "Sec-Fetch-Site", "cross-site",
		"Origin", s.url(""))
	s.refused(http.StatusForbidden, http.MethodPost, prefix+"/pauses", newPauseOK, "Sec-Fetch-Site", "same-site")
	require.Len(t, s.get(prefix+"/pauses").at("pauses"), 1)
}

func TestTheServersOwnPageMayChangeWhatItsUserMay(t *testing.T) {
	s := newStage(t, nil)
	s.ask(200, http.MethodPost, prefix+"/pauses", newPauseOK, "Origin", s.url(""), "Sec-Fetch-Site", "same-origin")
	require.Len(t, s.get(prefix+"/pauses").at("pauses"), 1)
}

func TestThePageIsThereForWhoHasYetToShowAToken(t *testing.T) {
	open := newStage(t, withTokens)
	page := open.ask(http.StatusOK, http.MethodGet, pagePath, "")
	require.Contains(t, page.Header.Get("Content-Security-Policy"), "default-src 'none'")
	open.refused(http.StatusUnauthorized, http.MethodGet, prefix+"/openapi.json", "")
	local := newStage(t, nil)
	local.ask(http.StatusOK, http.MethodGet, pagePath, "")
	local.refused(http.StatusForbidden, http.MethodGet, pagePath, "", "Host", "evil.example:80")
	local.refused(http.StatusForbidden, http.MethodGet, pagePath, "", "X-Forwarded-For", "10.0.0.1")
}

func TestActorIsBounded(t *testing.T) {
	s := newStage(t, nil)
	for _, actor := range []string{strings.Repeat("x", 101), "a\tb", "\xff"} {
		require.Equal(t, "X-Actor", s.refused(http.StatusBadRequest, http.MethodPost, prefix+"/pauses", newPauseOK,
			"X-Actor", actor).Parameter)
	}
}

// useUp takes what a bucket lets through for an hour.
func useUp(b *httpjson.Bucket) {
	for range 3 {
		b.Take(3, time.Now().Add(time.Hour))
	}
}

func TestRateIsBoundedAndStrangersDoNotUseItUp(t *testing.T) {
	s := newStage(t, func(s *stage) { withTokens(s); s.settings.Access.Rate = 3 })
	useUp(&s.server.api.refused) // by strangers
	s.refused(http.StatusTooManyRequests, http.MethodGet, prefix+"/status", "")
	s.get(prefix+"/status", "Authorization", "Bearer "+readToken)
	useUp(&s.server.api.admitted)
	answer := s.ask(http.StatusTooManyRequests, http.MethodGet, prefix+"/status", "",
		"Authorization", "Bearer "+readToken)
	require.Equal(t, "1", answer.Header.Get("Retry-After"))
	s.get("/healthz")
}

// A visit asks the API several things, and is one request of a number that is the page's own.
func TestVisitsOfThePageAreCountedByThemselvesAndOnce(t *testing.T) {
	s := newStage(t, func(s *stage) { withTokens(s); s.settings.Access.Rate, s.cfg.Page = 3, true })
	bearer := []string{"Authorization", "Bearer " + readToken}
	useUp(&s.server.api.admitted) // by scripts
	page := s.ask(http.StatusOK, http.MethodGet, "/ui/waiting", "", bearer...)
	require.Contains(t, string(page.body), "Waiting", "it asks four things")
	useUp(&s.server.api.visits)
	s.ask(http.StatusTooManyRequests, http.MethodGet, "/ui/waiting", "", bearer...)
	s.server.api.admitted = httpjson.Bucket{}
	s.get(prefix+"/status", bearer...)
}

// A browser that is led to the form to sign in is no event; a wrong token and a client without one are.
func TestVisitWithoutASessionIsNoWarning(t *testing.T) {
	s := newStage(t, func(s *stage) { withTokens(s); s.cfg.Page = true })
	const refused = "a request to the admin API is refused"
	s.ask(http.StatusUnauthorized, http.MethodGet, "/ui/dead", "")
	require.NotContains(t, s.logged(), refused)
	s.ask(http.StatusUnauthorized, http.MethodGet, "/ui/dead", "", "Authorization", "Bearer of-nobody")
	require.Equal(t, 1, strings.Count(s.logged(), refused))
	s.ask(http.StatusUnauthorized, http.MethodGet, prefix+"/status", "")
	require.Equal(t, 2, strings.Count(s.logged(), refused))
}

func TestAnActorHasAHundredBytesAtMost(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, prefix+"/pauses", nil)
	r.Header.Set("X-Actor", strings.Repeat("a", maxActor))
	who, refused := client{writer, "local"}.actor(r)
	require.Nil(t, refused)
	require.Equal(t, "local ("+strings.Repeat("a", maxActor)+")", who)
	r.Header.Set("X-Actor", strings.Repeat("a", maxActor+1))
	_, refused = client{writer, "local"}.actor(r)
	require.NotNil(t, refused)
}

func TestACertificateNamesTheClientWhereATokenMayDoNoMore(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, prefix+"/status", nil)
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "ann"}}}}}
	cfg := service.Access{ReadToken: readToken, WriteToken: writeToken, Certificates: true}
	for token, want := range map[string]string{readToken: "certificate ann", writeToken: "write token"} {
		r.Header.Set("Authorization", "Bearer "+token)
		who, refused := identify(r, cfg)
		require.Nil(t, refused)
		require.Equal(t, want, who.name)
	}
}
