// Package request is what servers of HTTP have in common that let a request take effect once: the key that it is known
// by, its body, read whole within bounds, its name in logs, and the problem that it is refused with. It knows no
// Postgres.
//
// Files in reading order: key.go, body.go, places.go, problem.go.
package request

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// The codes of what any request may be refused for. They don't change.
const (
	CodeTooLarge   = "request_too_large"
	CodeUnreadable = "request_body_unreadable"
)

// Problem is an answer that refuses a request (RFC 9457).
type Problem struct {
	Status int
	Code   string
	Detail string
	Retry  time.Duration // when to come again; 0: not said
}

// Body is the problem in JSON. typePrefix begins its type, and the code is added to it; empty: about:blank.
func (p *Problem) Body(typePrefix, requestID string) []byte {
	kind := "about:blank"
	if typePrefix != "" {
		kind = typePrefix + p.Code
	}
	text, _ := json.Marshal(Told{Code: p.Code, Detail: p.Detail, RequestID: requestID, Status: p.Status,
		Title: http.StatusText(p.Status), Type: kind})
	return text
}

// Told is a problem as a client gets it.
type Told struct {
	Code      string `json:"code" doc:"What a program can go by: it does not change."`
	Detail    string `json:"detail" doc:"What is wrong, and what to do, for a person."`
	RequestID string `json:"request_id" doc:"By which the service's log knows the request; the header X-Request-Id has it too."`
	Status    int    `json:"status"`
	Title     string `json:"title" doc:"The HTTP status in words."`
	Type      string `json:"type" doc:"about:blank, or the code after what the service puts before it."`
}

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter, typePrefix, requestID string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.Retry+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.Body(typePrefix, requestID))
}
