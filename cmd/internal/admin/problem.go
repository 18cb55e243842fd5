package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/firstseen/firstseen/cmd/internal/view"
)

// Problem is an error as a client gets it (RFC 9457, application/problem+json). Its text is ours, never that of
// Postgres or Kafka.
type Problem struct {
	Title     string `json:"title" doc:"The HTTP status in words."`
	Status    int    `json:"status"`
	Detail    string `json:"detail" doc:"What is wrong, and what to do."`
	Parameter string `json:"parameter,omitempty" doc:"The parameter, or the body's field, that is wrong."`
	Request   string `json:"request,omitempty" doc:"What the log says of this request stands beside this."`

	retryAfter time.Duration
	header     http.Header
}

func (p *Problem) Error() string { return p.Detail }

func problem(status int, format string, args ...any) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// wrong is a parameter that can't be what it is.
func wrong(parameter, format string, args ...any) *Problem {
	p := problem(http.StatusBadRequest, format, args...)
	p.Parameter = parameter
	return p
}

func (p *Problem) retry(after time.Duration) *Problem {
	p.retryAfter = max(after, time.Second)
	return p
}

func (p *Problem) with(name, value string) *Problem {
	p.header = http.Header{}
	p.header.Set(name, value)
	return p
}

func (p *Problem) write(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	if p.retryAfter > 0 {
		seconds := (p.retryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	_ = writeJSON(w, p.Status, "application/problem+json", p) // texts and a number: it can't fail
}

// writeJSON answers with one JSON value, or with nothing at all and the error of what can't be written as JSON. That
// the client is gone is nobody's concern.
func writeJSON(w http.ResponseWriter, status int, kind string, value any) error {
	text, err := view.JSON(value, "")
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(text) //nolint:gosec // JSON, of a type that no browser renders
	return nil
}
