// Package apipage is a page on which a person tries an HTTP API: it lists the operations of the API's OpenAPI document
// with their schemas, and sends requests to them. It is one file of HTML that is the same for every API and needs
// nothing else: no other host is asked for anything, and the browser is told to see to it.
package apipage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"regexp"
)

//go:embed page.html
var page []byte

// policy has the browser run and show what is in the page, and ask only the server that it comes from.
var policy = "default-src 'none'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
	"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// hashOf stands for the page's one element of a name, as a Content-Security-Policy (W3C CSP3, section 2.3.1) has it.
func hashOf(element string) string {
	content := regexp.MustCompile(`(?s)<` + element + `>(.*)</` + element + `>`).FindSubmatch(page)[1]
	sum := sha256.Sum256(content)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Handler serves the page. It reads the document at openapi.json beside its own path, with the token that is typed into
// it, and shows nothing before it has the document: so the page itself may be open to all where the document is not. It
// makes one Idempotency-Key and keeps it until it is asked for another; a token it forgets when it is closed.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		_, _ = bytes.NewReader(page).WriteTo(w)
	})
}
