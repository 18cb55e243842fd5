package idempotency

import (
	"crypto/sha256"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/request"
)

// Fingerprint tells whether two requests with one key are the same request: SHA-256 of method, route, path, query,
// content type and body. No header but Content-Type is in it: tokens, cookies and dates may change between tries.
type Fingerprint [sha256.Size]byte

// fingerprintOf hashes a request as it came, and not as the handler understands it: a deployment between two tries
// must make no difference. A JSON body counts by its canonical text (identity.FingerprintJSON): white space, the order
// of keys and the spelling of numbers don't matter. Any other counts by its bytes, so that a form with attachments has
// to be sent again with the same boundary. body is without its Content-Encoding.
func fingerprintOf(r *http.Request, route string, body []byte) Fingerprint {
	mode := identity.FingerprintBytes
	if isJSON(r.Header) {
		mode = identity.FingerprintJSON
	}
	if body == nil {
		body = []byte{}
	}
	return Fingerprint(sumOf(requestDomain, r.Method, route, request.Path(r), query(r.URL), contentType(r.Header),
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

// isJSON goes by the content type. Parameters don't matter, nor that they are malformed: handlers don't mind, and a key
// in the body must not be overlooked.
func isJSON(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}
