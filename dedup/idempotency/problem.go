package idempotency

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// The codes of problems, and the events of requests with a key. They don't change.
const (
	CodeUnauthorized   = "unauthorized"
	CodeKeyInvalid     = "idempotency_key_invalid"
	CodeKeyConflict    = "idempotency_key_conflict"
	CodeInProgress     = "idempotency_in_progress"
	CodeRequestTooBig  = "request_too_large"
	CodeRequestBroken  = "request_body_unreadable"
	CodeAnswerTooBig   = "idempotency_answer_too_large"
	CodeNotCommitted   = "idempotency_not_committed"
	CodeOutcomeUnknown = "idempotency_outcome_unknown"
	CodeUnavailable    = "idempotency_unavailable"
)

// problem is an answer of the middleware's own (RFC 9457).
type problem struct {
	status int
	code   string
	detail string
	retry  time.Duration // when to come again; 0: not said
}

// body is what the problem is told in.
func (p *problem) body(typePrefix, requestID string) []byte {
	kind := "about:blank"
	if typePrefix != "" {
		kind = typePrefix + p.code
	}
	text, _ := json.Marshal(map[string]any{"type": kind, "title": http.StatusText(p.status), "status": p.status,
		"code": p.code, "detail": p.detail, "request_id": requestID})
	return text
}

func (p *problem) write(w http.ResponseWriter, typePrefix, requestID string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.retry+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body(typePrefix, requestID))
}
