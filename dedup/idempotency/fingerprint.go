package idempotency

import (
	"crypto/sha256"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/firstseen/firstseen/dedup/identity"
)

// Fingerprint tells whether two requests with one key are the same request: SHA-256 of method, route, path, query,
// content type and body. No header but Content-Type is in it: tokens, cookies and dates may change between tries.
type Fingerprint [sha256.Size]byte

// fingerprintOf is that of a request as it came, and not of what the handler makes of it: a deployment between two
// tries must make no difference. A JSON body counts by its canonical text (identity.FingerprintJSON): white space, the
// order of keys and the spelling of numbers don't matter. Any other counts by its bytes, so that a form with
// attachments has to be sent again with the same boundary. body is without its Content-Encoding.
func fingerprintOf(r *http.Request, route string, body []byte) Fingerprint {
	mode := identity.FingerprintBytes
	if isJSON(r.Header) {
		mode = identity.FingerprintJSON
	}
	if body == nil {
		body = []byte{}
	}
	return Fingerprint(sumOf(requestDomain, r.Method, route, r.URL.EscapedPath(), query(r.URL), contentType(r.Header),
		string(mode.Of(body))))
}

// query has its parameters in one order; those of one name keep theirs.
func query(u *url.URL) string {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "?" + u.RawQuery
	}
	return values.Encode()
}

func contentType(h http.Header) string {
	text := h.Get("Content-Type")
	media, params, err := mime.ParseMediaType(text)
	if err != nil {
		return text
	}
	if charset, ok := params["charset"]; ok {
		params["charset"] = strings.ToLower(charset)
	}
	return mime.FormatMediaType(media, params)
}

// isJSON goes by the content type.
func isJSON(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json"))
}
