package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

const prefix = "/api/v1"

// access is what the visitor may do.
type access = apiview.Access

// problem is an error as a visitor gets it.
func problem(status int, format string, args ...any) *httpjson.Problem {
	return httpjson.Errorf(status, format, args...)
}

// statusOf is the HTTP status of a problem, and 500 for another error.
func statusOf(err error) int {
	if known, ok := errors.AsType[*httpjson.Problem](err); ok {
		return known.Status
	}
	return http.StatusInternalServerError
}

// get reads what the API has at a path, into answer.
func (v *visit) get(path string, query url.Values, answer any) error {
	return v.ask(http.MethodGet, prefix+path, query, nil, answer)
}

// change asks the API for a change.
func (v *visit) change(method, path string, query url.Values, body, answer any) error {
	return v.ask(method, prefix+path, query, body, answer)
}

// ask sends a request to the API, as from the visitor. What is no success is a Problem, but for health, which is told
// with 503 as well.
func (v *visit) ask(method, path string, query url.Values, body, answer any) error {
	r, err := v.request(method, path, query, body)
	if err != nil {
		return err
	}
	got := &recorder{header: http.Header{}, outer: v.w, status: http.StatusOK}
	v.page.api.ServeHTTP(got, r)
	switch kind := got.header.Get("Content-Type"); {
	case kind == httpjson.ProblemType:
		return got.problem()
	case kind != httpjson.Type:
		return problem(http.StatusBadGateway, "the API answers %d at %s, with %q and not with JSON", got.status, path, kind)
	}
	if err := json.Unmarshal(got.body.Bytes(), answer); err != nil {
		return fmt.Errorf("read the API's answer at %s: %w", path, err)
	}
	return nil
}

// request is the visitor's, but for what is asked for and for the credential of a session.
func (v *visit) request(method, path string, query url.Values, body any) (*http.Request, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(path)
	if err != nil {
		return nil, fmt.Errorf("ask the API: %w", err)
	}
	u.RawQuery = query.Encode()
	r := v.r.Clone(v.r.Context())
	r.Method, r.URL, r.RequestURI, r.Pattern = method, u, u.RequestURI(), ""
	r.Form, r.PostForm, r.MultipartForm = nil, nil, nil
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(content)), int64(len(content)), nil
	for name := range r.Header {
		if name == "Cookie" || strings.HasPrefix(name, "If-") || strings.HasPrefix(name, "Content-") || name == "Range" {
			r.Header.Del(name)
		}
	}
	r.Header.Del("Idempotency-Key")
	if v.key != "" {
		r.Header.Set("Idempotency-Key", v.key)
	}
	if body != nil {
		r.Header.Set("Content-Type", httpjson.Type)
	}
	v.session.sign(r.Header)
	return r, nil
}

// recorder keeps an answer of the API.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
	outer  http.ResponseWriter
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// SetWriteDeadline has a change take its time, as the API asks for.
func (r *recorder) SetWriteDeadline(at time.Time) error {
	return http.NewResponseController(r.outer).SetWriteDeadline(at)
}

func (r *recorder) problem() error {
	p := httpjson.Errorf(r.status, "")
	if err := json.Unmarshal(r.body.Bytes(), p); err != nil {
		return fmt.Errorf("read the API's problem: %w", err)
	}
	if after := r.header.Get("Retry-After"); after != "" {
		p = p.With("Retry-After", after)
	}
	return p
}
