package handlers

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// Webhook is a Detached handler that posts a message's value, byte for byte, to a URL. It goes with each call:
//
//	Content-Type         the message's own content-type header; else application/json where the value is JSON, else
//	                     application/octet-stream
//	Idempotency-Key      the message ID, a UUID
//	webhook-id           the message ID
//	webhook-timestamp    the time of this attempt, in Unix seconds
//	webhook-signature    for each secret v1, and the base64 of HMAC-SHA256(secret, id.timestamp.body)
//	X-Firstseen-Topic, X-Firstseen-Partition, X-Firstseen-Offset
//	X-Firstseen-Tenant   where the message has a tenant; percent-encoded
//	X-Firstseen-Raw-Id   where the producer's ID was not a UUID; percent-encoded
//	X-Firstseen-Null     true where the value is null and not just empty
//	traceparent          where the call is traced (W3C Trace Context)
//
// The three in the middle are the scheme of Standard Webhooks, version 1 (www.standardwebhooks.com).
//
// An answer of 2xx is success. 408, 409, 425, 500 and others of 5xx count an attempt. No connection, 429, and 503 with
// a Retry-After are an outage of the receiver: they count none, however long it takes. 502, 503, 504, an answer that
// breaks off and one that does not come in time count one only while other messages get through: see DESIGN.md, "When
// a handler fails". All of them are tried again, no earlier than a Retry-After says. Everything else is permanent,
// redirects too: they are not followed.
//
// It is safe for concurrent use.
type Webhook struct {
	url       *url.URL
	timeout   time.Duration
	headers   http.Header
	keys      [][]byte
	hidden    []string // what no error may show
	transport *http.Transport
	now       func() time.Time
}

// Header names that Webhook sets.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
	headerKey       = "Idempotency-Key"
	headerType      = "Content-Type"
	headerOurs      = "X-Firstseen-"
)

// NewWebhook makes a Webhook. It reports every fault of the config at once, each as "field: what is wrong", and shows
// no value of it.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	cfg = cfg.WithDefaults()
	w := &Webhook{timeout: cfg.Timeout, headers: http.Header{}, now: time.Now}
	err := errors.Join(w.setURL(cfg), w.setSecrets(cfg.Secrets), w.setHeaders(cfg.Headers), w.setTransport(cfg))
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Timeout bounds a call: see [TimeLimited].
func (w *Webhook) Timeout() time.Duration { return w.timeout }

// CloseIdleConnections closes the connections that no call is using. [Processor.RunLanes] does so at its end.
func (w *Webhook) CloseIdleConnections() { w.transport.CloseIdleConnections() }

// Reach opens a connection as a call would, up to the handshake of TLS, and closes it. Nothing is sent. Where calls go
// through a proxy it is the proxy that is reached.
func (w *Webhook) Reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	at := w.url
	if w.transport.Proxy != nil {
		at, _ = w.transport.Proxy(&http.Request{URL: w.url})
	}
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[at.Scheme]
	}
	conn, err := w.transport.DialContext(ctx, "tcp", net.JoinHostPort(at.Hostname(), port))
	if err == nil {
		defer conn.Close() //nolint:errcheck // nothing was sent
		if at.Scheme == "https" {
			conf := w.transport.TLSClientConfig.Clone()
			if conf.ServerName == "" {
				conf.ServerName = at.Hostname()
			}
			err = tls.Client(conn, conf).HandshakeContext(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("reach %s: %w", at.Host, err)
	}
	return nil
}

// Deliver posts the message. Its error is a *StatusError where the answer was not 2xx, marked Permanent, Unavailable
// or After as it deserves.
func (w *Webhook) Deliver(ctx context.Context, m dedup.Message) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected = false }, GotConn: func(httptrace.GotConnInfo) { connected = true }})
	req, err := w.request(ctx, &m)
	if err != nil {
		return err
	}
	resp, err := w.transport.RoundTrip(req)
	switch {
	case err != nil && !connected && !errors.Is(ctx.Err(), context.Canceled):
		// no message can be to blame
		return &isolate.AwayError{Err: Unavailable(fmt.Errorf("post to %s: no connection: %w", w.url.Host, err))}
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("post to %s: no answer within %s: %w", w.url.Host, w.timeout, context.DeadlineExceeded)
	case err != nil:
		return fmt.Errorf("post to %s: %w", w.url.Host, err)
	}
	// the status says it all; the rest frees the connection
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close()
	return w.verdict(resp, body)
}

func (w *Webhook) request(ctx context.Context, m *dedup.Message) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "", bytes.NewReader(m.Value))
	if err != nil {
		return nil, err
	}
	req.URL, req.Host = w.url, w.url.Host
	id, at := m.ID.String(), strconv.FormatInt(w.now().Unix(), 10)
	h := maps.Clone(w.headers)
	h[headerType] = []string{contentType(m)}
	h[headerKey] = []string{id}
	h[headerID] = []string{id}
	h[headerTimestamp] = []string{at}
	if len(w.keys) > 0 {
		h[headerSignature] = []string{sign(w.keys, id, at, m.Value)}
	}
	h[headerOurs+"Topic"] = []string{url.PathEscape(m.Topic)}
	h[headerOurs+"Partition"] = []string{strconv.Itoa(int(m.Partition))}
	h[headerOurs+"Offset"] = []string{strconv.FormatInt(m.Offset, 10)}
	for name, value := range map[string]string{"Tenant": m.Tenant, "Raw-Id": m.RawID} {
		if value != "" {
			h[headerOurs+name] = []string{url.PathEscape(value)}
		}
	}
	if m.Value == nil {
		h[headerOurs+"Null"] = []string{"true"}
	}
	if trace.SpanFromContext(ctx).IsRecording() {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
	req.Header = h
	return req, nil
}

// sign gives the signatures of a call, one for each key, by Standard Webhooks version 1, section "Webhook signature".
func sign(keys [][]byte, id, timestamp string, body []byte) string {
	var signatures []byte
	for i, key := range keys {
		if i > 0 {
			signatures = append(signatures, ' ')
		}
		h := hmac.New(sha256.New, key)
		h.Write([]byte(id + "." + timestamp + "."))
		h.Write(body)
		signatures = append(signatures, "v1,"...)
		signatures = base64.StdEncoding.AppendEncode(signatures, h.Sum(nil))
	}
	return string(signatures)
}

// contentType is the message's own where it says one that can be sent.
func contentType(m *dedup.Message) string {
	for _, h := range m.Headers {
		if strings.EqualFold(h.Key, headerType) && len(h.Value) > 0 && sendable(string(h.Value)) {
			return string(h.Value)
		}
	}
	if json.Valid(m.Value) {
		return "application/json"
	}
	return "application/octet-stream"
}

const (
	// maxAnswer caps the bytes of an answer that are read, and of its headers.
	maxAnswer = 64 << 10
	// maxSnippet caps those that an error shows.
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
		err = &isolate.AwayError{Err: Unavailable(err)} // the receiver says that it is not the message's fault
	case code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		err = &isolate.AwayError{Err: err}
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
