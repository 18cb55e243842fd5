package httpjson

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// MaxText caps a parameter's characters.
const MaxText = 1024

// Body reads a request's body whole: JSON, in UTF-8, of so many MiB at most.
func Body(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *Problem) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != Type {
		return nil, Errorf(http.StatusUnsupportedMediaType,
			"send the body as JSON, with the header Content-Type: application/json")
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most<<20))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil,
			Errorf(http.StatusRequestEntityTooLarge, "the body has more than %d MiB; ask for less at once", most)
	case err != nil:
		return nil, Errorf(http.StatusBadRequest, "the body did not arrive whole")
	case !utf8.Valid(content):
		return nil, Errorf(http.StatusBadRequest, "the body is not UTF-8")
	}
	return content, nil
}

// CheckText wants what Postgres can take.
func CheckText(name, text string) *Problem {
	if utf8.RuneCountInString(text) > MaxText || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return Wrong(name, "has more than %d characters, a null character, or bytes that are not UTF-8", MaxText)
	}
	return nil
}

// Brief cuts a client's text to a length that can be told back.
func Brief(text string) string {
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

// Failures number the requests that failed: the log has the error, and the client its number. It is safe for
// concurrent use.
type Failures struct {
	log   *slog.Logger
	since int64
	count atomic.Int64
}

// NewFailures tells a logger.
func NewFailures(log *slog.Logger) *Failures { return &Failures{log: log, since: time.Now().Unix()} }

// Log tells of a request that failed, and gives its number.
func (f *Failures) Log(r *http.Request, what string, err error) (id string) {
	id = fmt.Sprintf("%x-%d", f.since, f.count.Add(1))
	f.log.Error(what, "request", id, "method", r.Method, "path", r.URL.Path, "error", err)
	return id
}
