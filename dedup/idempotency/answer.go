package idempotency

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Answer is a request's answer, as far as it is given again.
type Answer struct {
	// Status is 200 to 599; 1xx is no answer.
	Status int
	// Header has the headers that are given again, and no other.
	Header http.Header
	Body   []byte
}

// representation headers are always given again: they belong to the body, or say where it is.
var representation = []string{"Content-Type", "Content-Encoding", "Content-Language", "Content-Location",
	"Content-Disposition", "Location", "Etag", "Last-Modified"}

// ofOneExchange are headers that must not be given again: of a session, of a connection, of who asks and when.
var ofOneExchange = []string{"Set-Cookie", "Set-Cookie2", "Date", "Age", "Connection", "Keep-Alive",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade", "Content-Length", "Www-Authenticate", "Authentication-Info", "Alt-Svc", "Strict-Transport-Security",
	"Server-Timing", "Retry-After", "X-Request-Id", "Idempotency-Key", replayedHeader}

// keptHeaders lists the headers that answers are stored with, canonical. It refuses what must not be given again.
func keptHeaders(chosen []string) ([]string, error) {
	kept := slices.Clone(representation)
	for _, name := range chosen {
		name = http.CanonicalHeaderKey(name)
		if slices.Contains(ofOneExchange, name) || strings.HasPrefix(name, "Access-Control-") {
			return nil, fmt.Errorf("the header %s is of one exchange and can't be given again", name)
		}
		kept = append(kept, name)
	}
	return kept, nil
}

func pick(h http.Header, names []string) http.Header {
	picked := http.Header{}
	for _, name := range names {
		if values := h[name]; len(values) > 0 {
			picked[name] = slices.Clone(values)
		}
	}
	return picked
}

// encodeHeader writes headers as HTTP/1.1 does: their values are bytes, which JSON would not keep. No line break is in
// them then; whatever else is, decodeAnswer gives back, as net/http sends it too.
func encodeHeader(h http.Header) []byte {
	var b bytes.Buffer
	_ = h.Write(&b) // a buffer takes everything
	return b.Bytes()
}

var errUnreadable = errors.New("the stored answer can't be read")

func decodeAnswer(status int, header, body []byte) (*Answer, error) {
	if status < 200 || status > 599 {
		return nil, fmt.Errorf("%w: its status is %d", errUnreadable, status)
	}
	h := http.Header{}
	for line := range strings.Lines(string(header)) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\r\n"), ": ")
		if !ok {
			return nil, fmt.Errorf("%w: its headers are none", errUnreadable)
		}
		h[name] = append(h[name], value)
	}
	return &Answer{Status: status, Header: h, Body: body}, nil
}
