package idempotency

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
)

// requestIDHeader is on every answer.
const requestIDHeader = "X-Request-Id"

// maxRequestID bounds what a client, or a proxy, may name a request by.
const maxRequestID = 128

// requestID is the name that the request came with, or that something before this gave it, or a new one.
func requestID(w http.ResponseWriter, r *http.Request) string {
	for _, id := range []string{w.Header().Get(requestIDHeader), r.Header.Get(requestIDHeader)} {
		if id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, isNotVisible) {
			return id
		}
	}
	return uuid.NewString()
}

func isNotVisible(r rune) bool { return r <= ' ' || r > '~' }

// readBody reads the request's body whole, and leaves it to be read again.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *problem) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if errors.As(err, new(*http.MaxBytesError)) {
		return nil, tooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &problem{status: http.StatusRequestTimeout, code: CodeRequestBroken, retry: time.Second,
			detail: "The body did not arrive in time. Nothing was done."}
	}
	if err != nil {
		return nil, &problem{status: http.StatusBadRequest, code: CodeRequestBroken,
			detail: "The body did not arrive whole. Nothing was done."}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return body, nil
}

func tooLarge(limit int64) *problem {
	return &problem{status: http.StatusRequestEntityTooLarge, code: CodeRequestTooBig,
		detail: fmt.Sprintf("The body is larger than %d bytes. Nothing was done.", limit)}
}

// decoded is the body without its Content-Encoding, where that is known and the body is what it says. Any other counts
// as it came.
func decoded(body []byte, encoding string, limit int64) ([]byte, *problem) {
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
