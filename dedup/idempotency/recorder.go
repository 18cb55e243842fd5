package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// ErrAnswerTooLarge is returned by a handler's Write where its answer is over Config.MaxAnswerBytes. Nothing of that
// answer is sent or stored.
var ErrAnswerTooLarge = errors.New("the answer is larger than the idempotency middleware keeps")

// recorder is a handler's http.ResponseWriter, in memory. It has no Unwrap: what is behind it is out of reach until
// the answer is stored.
type recorder struct {
	header   http.Header
	limit    int
	status   int // 0: not written yet
	sent     http.Header
	body     []byte
	tooLarge bool
}

func newRecorder(before http.Header, limit int) *recorder {
	return &recorder{header: before.Clone(), limit: limit}
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader takes the first status that is an answer, with the headers as they are now.
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if r.status == 0 && status >= 200 {
		r.status, r.sent = status, r.Header().Clone()
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	switch {
	case r.status == http.StatusNoContent, r.status == http.StatusNotModified:
		return 0, http.ErrBodyNotAllowed
	case r.tooLarge, len(p) > r.limit-len(r.body):
		r.tooLarge, r.body = true, nil
		return 0, ErrAnswerTooLarge
	}
	r.body = append(r.body, p...)
	return len(p), nil
}

// Flush does nothing: the client is told when all is stored.
func (r *recorder) Flush() {}

// finish returns the answer as it was when the handler returned.
func (r *recorder) finish() {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
}

// send sends everything that the handler has written but trailers, in the place of what was to be sent before it ran.
func (r *recorder) send(w http.ResponseWriter) {
	h := w.Header()
	clear(h)
	for name, values := range r.sent {
		if name != "Trailer" && !strings.HasPrefix(name, http.TrailerPrefix) {
			h[name] = values
		}
	}
	h.Del("Content-Length") // net/http knows it
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body)
}
