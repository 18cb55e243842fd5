package apipage_test

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/handlers/apipage"
)

func get(t *testing.T) (http.Header, string) {
	t.Helper()
	w := httptest.NewRecorder()
	apipage.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/try", nil))
	body, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	return w.Header(), string(body)
}

func TestPageRunsWhatIsInItAndAsksNoOtherHost(t *testing.T) {
	header, body := get(t)
	policy := header.Get("Content-Security-Policy")
	require.NotContains(t, policy, "unsafe")
	require.Regexp(t, `^default-src 'none'; .*; `+
		`connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$`, policy)
	for _, element := range []string{"script", "style"} {
		found := regexp.MustCompile(`(?s)<`+element+`>(.*?)</`+element+`>`).FindAllStringSubmatch(body, -1)
		require.Len(t, found, 1, "the policy has a hash for one %s", element)
		sum := sha256.Sum256([]byte(found[0][1]))
		require.Contains(t, policy, element+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	require.NotRegexp(t, `https?://`, body)
	require.NotRegexp(t, `\ssrc=|\shref=|\sstyle=|\son[a-z]+=|innerHTML|localStorage|eval\(`, body,
		"nothing is loaded, and what comes from a document is text")
	require.Equal(t, "no-referrer", header.Get("Referrer-Policy"))
	require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
}

func TestPageIsSmall(t *testing.T) {
	_, body := get(t)
	require.Less(t, len(body), 30_000)
}
