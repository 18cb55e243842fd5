package request

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
)

// IDHeader is on every answer.
const IDHeader = "X-Request-Id"

// maxID bounds what a client, or a proxy, may name a request by.
const maxID = 128

// ID is the name that the request came with, or that something before this gave it, or a new one.
func ID(w http.ResponseWriter, r *http.Request) string {
	for _, id := range []string{w.Header().Get(IDHeader), r.Header.Get(IDHeader)} {
		if id != "" && len(id) <= maxID && !strings.ContainsFunc(id, isNotVisible) {
			return id
		}
	}
	return uuid.NewString()
}

func isNotVisible(r rune) bool { return r <= ' ' || r > '~' }

// Path is the one that the client has sent, escaped, also where http.StripPrefix has taken a part of it away since.
func Path(r *http.Request) string {
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return sent.EscapedPath()
	}
	return r.URL.EscapedPath()
}

// Read gives the request's body without its Content-Encoding, and leaves it to be read again as it came. It has to
// arrive within a time, and to have no more than limit bytes, as it comes and as it is given.
func Read(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, *Problem) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(within)) // a writer that can't is a test's
	body, p := whole(w, r, limit)
	if p != nil {
		return nil, p
	}
	_ = control.SetReadDeadline(time.Time{})
	return decoded(body, r.Header.Get("Content-Encoding"), limit)
}

func whole(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *Problem) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if errors.As(err, new(*http.MaxBytesError)) {
		return nil, tooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &Problem{Status: http.StatusRequestTimeout, Code: CodeUnreadable, Retry: time.Second,
			Detail: "The body did not arrive in time. Nothing was done."}
	}
	if err != nil {
		return nil, &Problem{Status: http.StatusBadRequest, Code: CodeUnreadable,
			Detail: "The body did not arrive whole. Nothing was done."}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return body, nil
}

func tooLarge(limit int64) *Problem {
	return &Problem{Status: http.StatusRequestEntityTooLarge, Code: CodeTooLarge,
		Detail: fmt.Sprintf("The body is larger than %d bytes. Nothing was done.", limit)}
}

// decoded is the body without its Content-Encoding, where that is known and the body is what it says. Any other counts
// as it came.
func decoded(body []byte, encoding string, limit int64) ([]byte, *Problem) {
	var reader io.Reader
	var err error
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "gzip", "x-gzip":
		reader, err = gzip.NewReader(bytes.NewReader(body))
	case "deflate":
		reader, err = zlib.NewReader(bytes.NewReader(body))
	default:
		return body, nil
	}
	if err != nil {
		return body, nil //nolint:nilerr // it is not what it says
	}
	text, err := io.ReadAll(io.LimitReader(reader, limit+1))
	switch {
	case err != nil:
		return body, nil //nolint:nilerr // it is not what it says
	case int64(len(text)) > limit:
		return nil, tooLarge(limit)
	}
	return text, nil
}
