package page

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
)

// How much of a value is shown: as text, and as hex digits, which take five times as much.
const (
	shownBytes = 64 << 10
	hexBytes   = 16 << 10
)

// bytesShown are a key, a header's value or a message's value, as they are shown.
type bytesShown struct {
	As    string // json, text, hex; null and empty where there is nothing
	Text  string
	Bytes int
	Shown int // of these
}

// Cut says that more is there than is shown.
func (b bytesShown) Cut() bool { return b.Shown < b.Bytes }

// shownAs writes bytes as it is asked for: json, text or hex; empty is by what they are.
func shownAs(b *apiview.Bytes, as string) bytesShown {
	if b == nil {
		return bytesShown{As: "null"}
	}
	content := rawOf(b)
	out := bytesShown{Bytes: b.Bytes}
	if b.Bytes == 0 {
		out.As = "empty"
		return out
	}
	text := content[:min(len(content), shownBytes)]
	switch {
	case (as == "" || as == "json") && len(content) <= shownBytes && json.Valid(content):
		pretty, _ := indented(content)
		out.As, out.Text, out.Shown = "json", block(string(pretty)), len(content)
	case as != "hex" && (as == "text" || b.Text != nil):
		for len(text) < len(content) && len(text) > 0 && !utf8.RuneStart(content[len(text)]) {
			text = text[:len(text)-1]
		}
		out.As, out.Text, out.Shown = "text", block(string(text)), len(text)
	default:
		content = content[:min(len(content), hexBytes)]
		out.As, out.Text, out.Shown = "hex", hex.Dump(content), len(content)
	}
	return out
}

// rawOf are the bytes that the API has shown.
func rawOf(b *apiview.Bytes) []byte {
	switch {
	case b == nil:
		return nil
	case b.Text != nil:
		return []byte(*b.Text)
	case b.Base64 != nil:
		raw, _ := base64.StdEncoding.DecodeString(*b.Base64) // it is the API's own
		return raw
	}
	return nil
}

// headerShown is one header of a message.
type headerShown struct {
	Key   string
	Value bytesShown
}

// contentShown is a message's content.
type contentShown struct {
	As         string // what was asked for
	Key, Value bytesShown
	Headers    []headerShown
	HeadersCut bool
	Masked     bool
	Decoded    *bytesShown
	Fault      *string // why it could not be decoded
}

func contentOf(c *apiview.Content, as string) *contentShown {
	if c == nil {
		return nil
	}
	out := &contentShown{As: as, Key: shownAs(c.Key, as), Value: shownAs(c.Value, as), HeadersCut: c.HeadersCut, Masked: c.Masked,
		Fault: c.DecodeError}
	for _, h := range c.Headers {
		out.Headers = append(out.Headers, headerShown{h.Key, shownAs(h.Value, as)})
	}
	if c.Decoded != nil {
		decoded := shownAs(c.Decoded, "")
		out.Decoded = &decoded
	}
	return out
}

// letterPage is one dead letter.
type letterPage struct {
	Message apiview.Message
	Content *contentShown
}

func (v *visit) letter() (any, error) {
	asked := v.r.URL.Query()
	path := "/dead-letters/" + url.PathEscape(asked.Get("handler")) + "/" + url.PathEscape(asked.Get("id"))
	if asked.Get("handler") == "" || asked.Get("id") == "" {
		return nil, problem(http.StatusNotFound, "the address names no handler and no ID")
	}
	query := url.Values{}
	if tenant := asked.Get("tenant"); tenant != "" {
		query.Set("tenant", tenant)
	}
	var p letterPage
	if err := v.get(path, query, &p.Message); err != nil {
		return nil, err
	}
	p.Content = contentOf(p.Message.Content, asked.Get("as"))
	return p, nil
}

// messagePage tells the whole life of a message.
type messagePage struct {
	Filter  map[string]string
	Fault   string
	Found   *apiview.Explanation // nil: nothing was asked for
	Address string
}

func (v *visit) message() (any, error) {
	l, query := v.asked("id", "topic", "partition", "offset", "since")
	p := messagePage{Address: addressOf(v.name, query)}
	query.Del("limit")
	query.Del("cursor")
	if len(query) > 0 {
		var found apiview.Explanation
		err := l.blame(v.get("/explain", query, &found))
		if err != nil {
			return nil, err
		}
		if l.Fault == "" {
			p.Found = &found
		}
	}
	p.Filter, p.Fault = l.Filter, l.Fault
	return p, nil
}

// requestsPage tells of HTTP requests with an idempotency key. The key is asked for by a form, and stays out of
// addresses, which logs keep.
type requestsPage struct {
	Key, Tenant, Fault string
	Found              *apiview.Explanation
}

func (v *visit) requests() error {
	p := requestsPage{Key: strings.TrimSpace(v.r.PostFormValue("key")), Tenant: v.r.PostFormValue("tenant")}
	query := url.Values{}
	if p.Tenant != "" {
		query.Set("tenant", p.Tenant)
	}
	var found apiview.Explanation
	var l list
	err := error(nil)
	if p.Key == "" {
		p.Fault = "A key is needed."
	} else if err = l.blame(v.explainKey(p.Key, query, &found)); err == nil && l.Fault == "" {
		p.Found = &found
	}
	if err != nil {
		return err
	}
	if l.Fault != "" {
		p.Fault = l.Fault
	}
	return v.show(&view{"Requests", "requests", false, func(*visit) (any, error) { return p, nil }})
}

// explainKey asks with the key in a header.
func (v *visit) explainKey(key string, query url.Values, answer any) error {
	asking := *v
	asking.key = key
	return asking.get("/explain", query, answer)
}

// conflictPage is a copy beside the message that won.
type conflictPage struct {
	Copy   apiview.Conflict
	First  *apiview.Message // nil: it is kept no more
	Value  []line
	Others []line // key and headers
	Cut    bool
	Alone  *contentShown // the copy's, where there is no other
}

func (v *visit) conflict() (any, error) {
	asked := v.r.URL.Query()
	if asked.Get("handler") == "" || asked.Get("id") == "" {
		return nil, problem(http.StatusNotFound, "the address names no handler and no ID")
	}
	var found apiview.ConflictPairs
	err := v.get("/conflicts/"+url.PathEscape(asked.Get("handler"))+"/"+url.PathEscape(asked.Get("id")),
		only(asked, "tenant"), &found)
	if err != nil {
		return nil, err
	}
	for i := range found.Conflicts {
		c := &found.Conflicts[i]
		if asked.Get("at") == placeOf(c.Copy.Topic, c.Copy.Partition, c.Copy.Offset) && c.Copy.Tenant == asked.Get("tenant") {
			p := conflictPage{Copy: c.Copy, First: c.First}
			p.diff()
			return p, nil
		}
	}
	return nil, problem(http.StatusNotFound, "there is no such conflict any more")
}

// whole is a message with its content, which a list of those with its ID and status has; nil: it is there no more.
func (v *visit) whole(m *apiview.Message) (*apiview.Message, error) {
	query := url.Values{"status": {m.Status}, "id": {m.ID}, "content": {"true"}, "limit": {"100"}}
	if m.Handler != "" {
		query.Set("handler", m.Handler)
	}
	if m.ReceivedAt != nil {
		query.Set("since", m.ReceivedAt.Format(time.RFC3339))
	}
	var found apiview.Messages
	if err := v.get(ofPath(ofInbox(m.Inbox), "/messages"), query, &found); err != nil {
		return nil, err
	}
	for i := range found.Messages {
		if found.Messages[i].Tenant == m.Tenant && found.Messages[i].Handler == m.Handler {
			return &found.Messages[i], nil
		}
	}
	return nil, nil
}

// contentPage is a message of any status, with its content.
type contentPage struct {
	Message *apiview.Message
	Content *contentShown
}

func (v *visit) content() (any, error) {
	asked := v.r.URL.Query()
	m := apiview.Message{Status: asked.Get("status"), ID: asked.Get("id"), Handler: asked.Get("handler"), Tenant: asked.Get("tenant")}
	if ofOutbox(asked.Get("of")) != "" {
		m.Inbox = dedup.OutboxInbox
	}
	if at, err := time.Parse(time.RFC3339Nano, asked.Get("received")); err == nil {
		m.ReceivedAt = &at
	}
	found, err := v.whole(&m)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, problem(http.StatusNotFound, "the message is not %s any more: see what became of it", visible(m.Status))
	}
	return contentPage{found, contentOf(found.Content, asked.Get("as"))}, nil
}

// Masked says that something is hidden on one of the sides.
func (p conflictPage) Masked() bool {
	return p.Copy.Content != nil && p.Copy.Content.Masked || p.First != nil && p.First.Content != nil && p.First.Content.Masked
}

func (p *conflictPage) diff() {
	if p.First == nil || p.First.Content == nil || p.Copy.Content == nil {
		p.First, p.Alone = nil, contentOf(p.Copy.Content, "")
		return
	}
	a, b := p.First.Content, p.Copy.Content
	p.Value = diff(linesOf(a.Value), linesOf(b.Value))
	p.Others = diff(othersOf(a), othersOf(b))
	p.Cut = a.Value != nil && a.Value.Cut || b.Value != nil && b.Value.Cut
}

// linesOf are the lines of a value; those of one that is no text are of hex digits.
func linesOf(b *apiview.Bytes) []string {
	if b == nil {
		return []string{"(null)"}
	}
	if b.Text == nil {
		raw := rawOf(b)
		return lines([]byte(hex.Dump(raw[:min(len(raw), hexBytes)])))
	}
	out := lines(rawOf(b))
	for i := range out {
		out[i] = block(out[i])
	}
	return out
}

func othersOf(c *apiview.Content) []string {
	out := []string{"key: " + cut(500, shownAs(c.Key, "").Text)}
	for _, h := range c.Headers {
		out = append(out, cut(100, h.Key)+": "+cut(500, shownAs(h.Value, "").Text))
	}
	return out
}
