package page

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
)

// functions are what templates call.
var functions = template.FuncMap{
	"visible": visible, "blockOf": func(text *string) string { return block(*text) }, "cut": cut,
	"moment": momentOf, "seconds": seconds, "count": count, "size": size, "percent": percent,
	"link": link, "addressOf": filtered, "contentOf": contentLink, "download": downloadLink, "bulkOf": bulkOf,
	"idOf": idOf, "place": placeOf, "row": rowOf, "verb": verb, "meaning": meaning, "filterText": filterText, "replayText": replayText,
	"orderings": func() []string { return []string{"key", "partition", "none"} },
	"missing":   func(why string) string { return missing[why] },
	"statuses":  func() []string { return []string{"dead", "failed", "pending", "processed"} },
	"unmask": func(form, of, handler, tenant, id string) unmaskForm {
		return unmaskForm{form, of, handler, tenant, id}
	},
	"ofInbox": ofInbox,
	"pair":    func(form string, p apiview.Pause, of string) resumeForm { return resumeForm{form, p, of} },
}

// missing says why a message can't be rerun.
var missing = map[string]string{
	"unseen":  "was never seen by this handler, or its ID was forgotten by retention",
	"parked":  "is not processed yet: it waits in its lane",
	"dead":    "is a dead letter: redrive it instead",
	"dropped": "was processed, and is not kept any more: its day was dropped from the inbox",
}

// visible is a text in one line, in which what can't be seen, or changes the direction of what is around it, is
// written by its number.
func visible(text any) string { return reveal(textOf(text), "") }

// block is a text of several lines, likewise.
func block(text string) string { return reveal(text, "\n\t") }

func textOf(text any) string {
	switch t := text.(type) {
	case *string:
		if t == nil {
			return ""
		}
		return *t
	case string:
		return t
	}
	return fmt.Sprint(text)
}

func reveal(text, kept string) string {
	var out strings.Builder
	for i, r := range text {
		switch _, n := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, "⟨%02X⟩", text[i])
		case unseen(r) && !strings.ContainsRune(kept, r):
			fmt.Fprintf(&out, "⟨U+%04X⟩", r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// unseen says that a character shows nothing, or something else than it is.
func unseen(r rune) bool {
	return r != ' ' && (unicode.IsControl(r) || unicode.IsSpace(r) || r == '\u2800' || unicode.In(r, unicode.Cf,
		unicode.Zs, unicode.Zl, unicode.Zp, unicode.Co, unicode.Other_Default_Ignorable_Code_Point, unicode.Bidi_Control))
}

// cut is at most n characters of a text in one line, and how many more there are.
func cut(n int, text any) string {
	whole := textOf(text)
	if utf8.RuneCountInString(whole) <= n {
		return visible(whole)
	}
	shown := string([]rune(whole[:min(len(whole), 4*n)])[:n])
	return visible(shown) + "… (" + count(utf8.RuneCountInString(whole)-n) + " more)"
}

// moment is a time, for people and for the script, which adds the reader's zone.
type moment struct{ ISO, Text string }

// momentOf is a time, or a pointer to one; nil where there is none.
func momentOf(at any) *moment {
	var t time.Time
	switch at := at.(type) {
	case time.Time:
		t = at
	case *time.Time:
		if at != nil {
			t = *at
		}
	}
	if t.IsZero() {
		return nil
	}
	return &moment{t.UTC().Format(time.RFC3339Nano), t.UTC().Format("2006-01-02 15:04:05 UTC")}
}

func seconds(s float64) string {
	if s == 0 {
		return "0 s"
	}
	return spoken(time.Duration(s * float64(time.Second)))
}

// spoken is a duration in its largest unit, and the next where the first one is small.
func spoken(d time.Duration) string {
	units := []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}
	for i, u := range units {
		if n := d / u.of; n > 0 {
			text := fmt.Sprintf("%d %s", n, u.name)
			if rest := d % u.of; n < 10 && i+1 < len(units) && u.of > time.Second && rest >= units[i+1].of {
				text += fmt.Sprintf(" %d %s", rest/units[i+1].of, units[i+1].name)
			}
			return text
		}
	}
	return "0 s"
}

// link is the address of one of our pages with names and values; values that are empty are left out.
func link(page string, pairs ...any) string {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := textOf(pairs[i+1]); text != "" {
			query.Add(textOf(pairs[i]), text)
		}
	}
	return addressOf(page, query)
}

func addressOf(page string, query url.Values) string {
	if page == "" {
		page = "./"
	}
	if len(query) == 0 {
		return page
	}
	return page + "?" + query.Encode()
}

// count is a number with its digits in groups.
func count(n any) string {
	text := fmt.Sprint(n)
	switch p := n.(type) {
	case *int64:
		if p == nil {
			return "–"
		}
		text = strconv.FormatInt(*p, 10)
	case float64:
		text = strconv.FormatFloat(p, 'f', -1, 64)
	}
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "−", text[1:]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "\u202f" + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}

func size(n any) string {
	bytes := float64(0)
	switch n := n.(type) {
	case int:
		bytes = float64(n)
	case int64:
		bytes = float64(n)
	case *int64:
		if n == nil {
			return "–"
		}
		bytes = float64(*n)
	}
	for _, u := range []struct {
		name string
		of   float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= u.of {
			return strconv.FormatFloat(bytes/u.of, 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatFloat(bytes, 'f', 0, 64) + " B"
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

// idOf is a message's ID as its producer wrote it.
func idOf(m apiview.Message) string {
	if m.RawID != nil {
		return *m.RawID
	}
	return m.ID
}

// placeOf is where a message lies, as the command line writes it.
func placeOf(topic string, partition int32, offset int64) string {
	if partition < 0 {
		return topic + ", by HTTP"
	}
	return fmt.Sprintf("%s/%d@%d", topic, partition, offset)
}

// filtered is the address of a list with its filter.
func filtered(page string, filter map[string]string) string {
	query := url.Values{}
	for name, text := range filter {
		query.Set(name, text)
	}
	return addressOf(page, query)
}

// contentLink is the address of a message's content.
func contentLink(m *apiview.Message) string {
	received := ""
	if at := momentOf(m.ReceivedAt); at != nil {
		received = at.ISO
	}
	return link("content", "of", ofInbox(m.Inbox), "status", m.Status, "handler", m.Handler, "tenant", m.Tenant, "id", m.ID,
		"received", received)
}

// ofInbox is how addresses and forms name the inbox that a message lies in.
func ofInbox(inbox string) string {
	if inbox == dedup.OutboxInbox {
		return "outbox"
	}
	return ""
}

// bulkOf is the address of the page that counts all that a filter matches.
func bulkOf(kind string, filter map[string]string) string {
	query := url.Values{"kind": {kind}}
	for _, name := range letterFilter {
		if text := filter[name]; text != "" {
			query.Set(name, text)
		}
	}
	return addressOf("bulk", query)
}

// resumeForm is the form that resumes what is paused.
type resumeForm struct {
	Form  string
	Pause apiview.Pause
	Of    string
}

// verb is what is to be done, in a few words.
func verb(c change) string {
	switch n := count(len(c.Rows)); {
	case c.Do == "pause":
		return "Pause " + c.Kind + " " + visible(c.Name)
	case c.Do == "resume":
		return "Resume " + c.Kind + " " + visible(c.Name)
	case c.Do == "discard":
		return "Discard " + n + " of the dead letters"
	case c.Of != "":
		return "Send " + n + " of the dead letters again"
	default:
		return "Redrive " + n + " of the dead letters"
	}
}

// meaning is what that will do.
func meaning(c change) string {
	switch {
	case c.Do == "pause" && c.Of != "":
		return "Nothing of it is sent, by any process, until it is resumed."
	case c.Do == "pause" && c.Kind == "handler":
		return "Its messages are parked, in order, in all processes of the inbox, until it is resumed."
	case c.Do == "pause":
		return "Nothing of it is taken, in all processes of the inbox, until it is resumed. Mind the topic's retention."
	case c.Do == "resume":
		return "It goes on in all processes within two seconds."
	case c.Do == "discard":
		return "They are forgotten for good. Their IDs stay seen: a copy of one is a duplicate. This can't be taken back."
	case c.Of != "":
		return "They are sent again, under the same IDs."
	default:
		return "They are given back to their handlers, which handle each of them once more."
	}
}
