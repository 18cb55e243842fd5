package page_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// every has all pages that are read without saying what.
var every = []string{"", "doctor", "waiting", "dead", "message", "conflicts", "outbox", "requests", "pauses", "audit", "size", "jobs", "processes",
	"replays", "replay", "rerun"}

func TestEveryPageIsThereForWhoIsSignedInAndForNobodyElse(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1", value: []byte(`{"total":9007199254740993}`)})
	reader := s.signedIn(readToken, "")
	for _, page := range every {
		body := reader.read(page)
		require.Contains(t, body, `<h1`, page)
		require.NotContains(t, body, "order-1x")
		signIn := s.browser().get(page + "?x=1")
		require.Equal(t, http.StatusUnauthorized, signIn.status, page)
		require.Contains(t, signIn.body, `name="next" value="`+page+`?x=1"`)
		require.NotContains(t, signIn.body, "order")
	}
	require.Equal(t, http.StatusNotFound, reader.get("nothing").status)
}

func TestLetterIsFoundRedrivenAndGone(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1", value: []byte(`{"total":9007199254740993}`)})
	s.add(letter{id: "order-2", handler: "mail"})
	b := s.signedIn(writeToken, "ann")
	page := b.read("dead?handler=book")
	require.Contains(t, page, "order-1")
	require.NotContains(t, page, "order-2")
	row := url.Values{"handler": {"book"}, "tenant": {""}, "id": {s.idOf("order-1")}}.Encode()
	confirm := b.post("confirm", "form", formOf(t, page), "do", "redrive", "row", row, "back", "dead?handler=book")
	require.Equal(t, http.StatusOK, confirm.status, confirm.body)
	require.Contains(t, confirm.body, "Redrive 1 of the dead letters")
	sent := append(inputs(confirm.body), "why", "fixed in 1.4.2")
	done := b.post("apply", sent...)
	require.Equal(t, http.StatusSeeOther, done.status, done.body)
	require.Contains(t, b.read(done.header.Get("Location")), "Redriven: 1 of 1 selected")
	require.NotContains(t, b.read("dead?handler=book"), "order-1")
	require.Contains(t, b.read("audit"), "write token (ann)")
	require.Contains(t, b.read("message?id=order-1"), "fixed in 1.4.2")

	t.Run("twice pressed is once done", func(t *testing.T) {
		again := b.post("apply", sent...)
		require.Equal(t, done.header.Get("Location"), again.header.Get("Location"))
		records, _, err := s.inbox.Audit(t.Context(), operate.AuditFilter{Action: "redrive"}, "", 10)
		require.NoError(t, err)
		require.Len(t, records, 1)
	})
}

// hostile are texts that mean something to a browser or hide something from a reader.
var hostile = []struct{ text, shown string }{
	{`<script>alert(1)</script>`, `<script>alert(1)</script>`},
	{`"><img src=x onerror=alert(1)>`, `"><img src=x onerror=alert(1)>`},
	{"{{.Form}}", "{{.Form}}"},
	{"invoice\u202Egnp.exe", "invoice⟨U+202E⟩gnp.exe"},
	{"bell\aesc\x1b[31m", "bell⟨U+0007⟩esc⟨U+001B⟩[31m"},
	{"zero\u200bwidth\ufeff", "zero⟨U+200B⟩width⟨U+FEFF⟩"},
	{"javascript:alert(1)", "javascript:alert(1)"},
}

func TestHostileTextsAreShownAsTextEverywhere(t *testing.T) {
	s := newStage(t, nil)
	b := s.signedIn(writeToken, "")
	for i, h := range hostile {
		id := "order-" + h.text
		raw := s.add(letter{id: id, handler: "book", tenant: h.text, topic: "t", reason: "permanent", err: h.text,
			key: []byte(h.text), value: []byte(h.text), headers: []dedup.Header{{Key: h.text, Value: []byte(h.text)}}})
		for _, address := range []string{"dead?tenant=" + url.QueryEscape(h.text),
			"letter?handler=book&id=" + raw.String(), "message?id=" + url.QueryEscape(id)} {
			page := b.read(address)
			require.Contains(t, requireInert(t, page), h.shown, "%d at %s", i, address)
		}
	}
	requireInert(t, b.read("dead"))
}

// requireInert wants no element and no attribute that a text could have brought along, and nothing that can't be seen. It gives
// the page's text.
func requireInert(t *testing.T, page string) (text string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	scripts := 0
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			require.NotRegexp(t, "[\u202e\u200b\ufeff\a\x1b]", n.Data)
			text += n.Data
		}
		if n.Type != html.ElementNode {
			continue
		}
		require.NotContains(t, []string{"img", "iframe", "object", "embed", "style", "base"}, n.Data)
		if n.Data == "script" {
			scripts++
		}
		for _, a := range n.Attr {
			require.False(t, strings.HasPrefix(a.Key, "on") || a.Key == "style", "%s of %s", a.Key, n.Data)
			if a.Key == "href" || a.Key == "action" || a.Key == "src" {
				require.Regexp(t, `^(#main|\./|[a-z]+(\.[a-z]+)?)?(\?[^:]*)?$`, a.Val)
			}
		}
	}
	require.Equal(t, 1, scripts, "the page's own")
	return text
}

// idOf is the ID of the dead letter with a text for an ID.
func (s *stage) idOf(text string) string {
	for _, m := range s.dead() {
		if m.Message.RawID == text {
			return m.Message.ID.String()
		}
	}
	s.t.Fatalf("no dead letter %s", text)
	return ""
}

// What the page loads is its own, small, and kept by browsers; and it tells them to load nothing else.
func TestFilesAreSmallAndOfThisHost(t *testing.T) {
	s := newStage(t, nil)
	b := s.browser()
	signIn := b.get("")
	require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'", signIn.header.Get("Content-Security-Policy"))
	require.Equal(t, "nosniff", signIn.header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", signIn.header.Get("Cache-Control"))
	total := len(signIn.body)
	for _, found := range regexp.MustCompile(`(?:href|src)="([a-z]+\.[a-z]+\?[^"]*)"`).FindAllStringSubmatch(signIn.body, -1) {
		file := b.get(found[1])
		require.Equal(t, http.StatusOK, file.status)
		require.Contains(t, file.header.Get("Cache-Control"), "immutable")
		require.NotRegexp(t, `https?://[^w]|innerHTML|localStorage|eval\(`, file.body)
		total += len(file.body)
	}
	require.Greater(t, total, 10_000)
	require.Less(t, total, 100_000)
	require.Equal(t, "ui/", func() string {
		r, err := b.client.Get(strings.TrimSuffix(s.url(""), "/"))
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		return r.Header.Get("Location")
	}())
}

// textOf is a page's text.
func textOf(t *testing.T, page string) (text string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			text += n.Data
		}
	}
	return text
}

// linkTo is the address of a link by its text.
func linkTo(t *testing.T, page, text string) string {
	t.Helper()
	found := regexp.MustCompile(`href="([^"]*)"[^>]*>` + regexp.QuoteMeta(text) + `</a>`).FindStringSubmatch(page)
	require.NotNil(t, found, "no link %s", text)
	return html.UnescapeString(found[1])
}
