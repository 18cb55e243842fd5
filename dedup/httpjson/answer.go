package httpjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// Type is the media type of JSON.
const Type = "application/json"

// Marshal is a value as JSON, whole or not at all, and a newline. What may steer a terminal is escaped: control
// characters, the ones above ASCII too, and those that change the direction of text.
func Marshal(value any, indent string) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return escape(out.Bytes()), nil
}

// escape escapes control characters in JSON, and those that change the direction of text: its own layout has no other
// control character than the newline, and texts have no raw one.
func escape(text []byte) []byte {
	steers := func(r rune) bool { return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) }
	if !bytes.ContainsFunc(text, steers) {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for _, r := range string(text) {
		if steers(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, string(r)...)
		}
	}
	return out
}

// Write answers with one JSON value, or with nothing at all and the error of what can't be written as JSON. That
// the client is gone is nobody's concern.
func Write(w http.ResponseWriter, status int, kind string, value any) error {
	text, err := Marshal(value, "")
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	Send(w, status, kind, text)
	return nil
}

// Guard sets the headers by which no cache keeps an answer, and no browser takes it for a page.
func Guard(set func(name, value string)) {
	set("Cache-Control", "no-store")
	set("X-Content-Type-Options", "nosniff")
}

// Send answers with JSON that is written already, guarded.
func Send(w http.ResponseWriter, status int, kind string, text []byte) {
	w.Header().Set("Content-Type", kind)
	Guard(w.Header().Set)
	w.WriteHeader(status)
	_, _ = w.Write(text) //nolint:gosec // JSON, of a type that no browser renders
}

// Methods are a path's handlers, by method; HEAD is answered as GET.
type Methods map[string]http.HandlerFunc

func (m Methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if serve := m[method]; serve != nil {
		serve(w, r)
		return
	}
	var names []string
	for name := range m {
		if names = append(names, name); name == http.MethodGet {
			names = append(names, http.MethodHead)
		}
	}
	slices.Sort(names)
	allowed := strings.Join(names, ", ")
	Errorf(http.StatusMethodNotAllowed, "this path takes %s", allowed).With("Allow", allowed).Write(w)
}
