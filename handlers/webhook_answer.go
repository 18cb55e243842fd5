package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// maxAnswer is how many bytes of an answer are read, and of its headers.
	maxAnswer = 64 << 10
	// maxSnippet is how many bytes of it an error shows.
	maxSnippet = 256
)

// StatusError is an answer to a Webhook's call that is not 2xx.
type StatusError struct {
	Host string
	Code int
	// Snippet is the start of the answer's body, without what the call's own headers hold.
	Snippet string
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("post to %s: answered %d %s", e.Host, e.Code, http.StatusText(e.Code))
	if e.Code/100 == 3 {
		text += "; redirects are not followed"
	}
	if e.Snippet != "" {
		text += ": " + e.Snippet
	}
	return text
}

// verdict decides on an answer.
func (w *Webhook) verdict(resp *http.Response, body []byte) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	var err error = &StatusError{Host: w.url.Host, Code: resp.StatusCode, Snippet: w.snippet(body)}
	wait := retryAfter(resp.Header.Get("Retry-After"), w.now())
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable && wait > 0:
		err = &awayError{Unavailable(err)} // the receiver says that it is not the message's fault
	case code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		err = &awayError{err}
	case code/100 == 5, code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooEarly:
	default:
		return Permanent(err)
	}
	if wait > 0 {
		return After(err, wait)
	}
	return err
}

// retryAfter reads a Retry-After header: seconds or a date (RFC 9110, 10.2.3). It is 0 for anything else.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return at.Sub(now)
	}
	return 0
}

// snippet is the start of an answer as an error may show it.
func (w *Webhook) snippet(body []byte) string {
	text := string(body)
	for _, hidden := range w.hidden {
		text = strings.ReplaceAll(text, hidden, "***")
	}
	if len(text) > maxSnippet {
		text = text[:maxSnippet]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(text), "\uFFFD"))
}
