// Package httpjson is what an HTTP server of JSON is made with, whatever it serves: a request's body and texts enter,
// bounded, and JSON or a problem leaves. It knows nothing else of the program.
//
// Files in reading order: problem.go (errors as a client gets them), request.go, answer.go, limit.go, connections.go,
// host.go.
package httpjson

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Problem is an error as a client gets it (RFC 9457, application/problem+json). Its text is ours, never that of
// Postgres or Kafka.
type Problem struct {
	Title     string `json:"title" doc:"The HTTP status in words."`
	Status    int    `json:"status"`
	Detail    string `json:"detail" doc:"What is wrong, and what to do."`
	Parameter string `json:"parameter,omitempty" doc:"The parameter, or the body's field, that is wrong."`
	Request   string `json:"request,omitempty" doc:"What the log says of this request stands beside this."`

	header http.Header
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus and ContentType are what huma asks of an error.
func (p *Problem) GetStatus() int            { return p.Status }
func (p *Problem) ContentType(string) string { return ProblemType }

// Errorf makes a Problem of an HTTP status and what is wrong.
func Errorf(status int, format string, args ...any) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// Wrong is a parameter that can't be what it is.
func Wrong(parameter, format string, args ...any) *Problem {
	p := Errorf(http.StatusBadRequest, format, args...)
	p.Parameter = parameter
	return p
}

// Retry says when to ask again, in whole seconds.
func (p *Problem) Retry(after time.Duration) *Problem {
	seconds := (max(after, time.Second) + time.Second - 1) / time.Second
	return p.With("Retry-After", strconv.Itoa(int(seconds)))
}

// With gives the answer a header.
func (p *Problem) With(name, value string) *Problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
	return p
}

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	_ = Write(w, p.Status, ProblemType, p) // texts and a number: it can't fail
}
