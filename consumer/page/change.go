package page

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

// A change is asked for by one form, which leads to a page that says what will be done, and done by that page's.

// change is what is to be done.
type change struct {
	Do     string   // redrive, discard, pause or resume
	Of     string   // outbox, or empty: the inbox
	Rows   []string // the letters, as rowOf has them
	Kind   string   // of a pause
	Name   string
	Why    string
	Once   string // the change's own number: a form that is sent twice is one change
	Back   string // the page that it was asked for from
	Groups []letters
	Fault  string // what is wrong with what was asked for
	Notes  []string
}

// letters are those of one handler and tenant, which the API takes at once.
type letters struct {
	Handler, Tenant string
	IDs             []string
	Would           int // be changed
}

// rowOf names a letter in a form.
func rowOf(m apiview.Message) string {
	return url.Values{"handler": {m.Handler}, "tenant": {m.Tenant}, "id": {m.ID}}.Encode()
}

// maxRows caps the letters of one change.
const maxRows = 1000

func (v *visit) readChange() (c change, err error) {
	form := v.r.PostForm
	c = change{Do: form.Get("do"), Of: form.Get("of"), Rows: form["row"], Kind: form.Get("kind"), Name: form.Get("name"),
		Why: strings.TrimSpace(form.Get("why")), Once: form.Get("once"), Back: v.localPage(form.Get("back"))}
	switch {
	case c.Of != "" && c.Of != "outbox":
		return c, problem(http.StatusBadRequest, "the form names neither the inbox nor the outbox")
	case c.Do == "pause" || c.Do == "resume":
		return c, nil
	case c.Do != "redrive" && c.Do != "discard":
		return c, problem(http.StatusBadRequest, "the form does not say what to do")
	case len(c.Rows) == 0:
		return c, problem(http.StatusBadRequest, "no message is selected: go back, and select some")
	case len(c.Rows) > maxRows:
		return c, problem(http.StatusBadRequest, "more than %d messages are selected", maxRows)
	}
	for _, row := range c.Rows {
		q, err := url.ParseQuery(row)
		if err != nil || q.Get("id") == "" {
			return c, problem(http.StatusBadRequest, "the form names a message that is none")
		}
		c.add(q.Get("handler"), q.Get("tenant"), q.Get("id"))
	}
	return c, nil
}

func (c *change) add(handler, tenant, id string) {
	i := slices.IndexFunc(c.Groups, func(g letters) bool { return g.Handler == handler && g.Tenant == tenant })
	if i < 0 {
		i = len(c.Groups)
		c.Groups = append(c.Groups, letters{Handler: handler, Tenant: tenant})
	}
	c.Groups[i].IDs = append(c.Groups[i].IDs, id)
}

// letterChange is the body of a redrive or a discard.
type letterChange struct {
	Handler string   `json:"handler,omitempty"`
	Tenant  string   `json:"tenant,omitempty"`
	IDs     []string `json:"ids"`
	Why     string   `json:"why,omitempty"`
	DryRun  bool     `json:"dry_run,omitempty"`
}

// changeLetters asks for one group's, and gives how many were changed, or would be.
func (v *visit) changeLetters(c *change, g *letters, dryRun bool) (int, error) {
	var changed apiview.Changed
	body := letterChange{g.Handler, g.Tenant, g.IDs, c.Why, dryRun}
	err := v.change(http.MethodPost, ofPath(c.Of, "/dead-letters/"+c.Do), nil, body, &changed)
	return changed.Messages, err
}

// confirm says what will be done, and asks why.
func (v *visit) confirm() error {
	c, err := v.readChange()
	if err != nil {
		return err
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		if g.Would, err = v.changeLetters(&c, g, true); statusOf(err) == http.StatusConflict && err != nil {
			c.Notes = append(c.Notes, err.Error()) // some can't be redriven
		} else if err != nil {
			return err
		}
	}
	c.Once = rand.Text()
	return v.showChange(c)
}

func (v *visit) showChange(c change) error {
	return v.show(&view{"Confirm", "confirm", false, func(*visit) (any, error) { return c, nil }})
}

// apply does what was confirmed. A change that is sent again leads to what became of it.
func (v *visit) apply() error {
	c, err := v.readChange()
	switch {
	case err != nil:
		return err
	case c.Once == "" || len(c.Once) > 64:
		return problem(http.StatusBadRequest, "the form has no number")
	case c.Why == "":
		c.Fault = "Say why: it is kept in the audit."
		return v.showChange(c)
	}
	o, first := v.page.done.begin(v.outcomeKey(c.Once), v.now)
	if first {
		v.page.done.set(o, v.perform(&c))
	}
	v.redirect(link("done", "change", c.Once))
	return nil
}

// perform changes one group after the other.
func (v *visit) perform(c *change) outcome {
	o := outcome{Back: c.Back, Why: c.Why}
	if c.Do == "pause" || c.Do == "resume" {
		return v.performPause(c, o)
	}
	done := 0
	for i := range c.Groups {
		n, err := v.changeLetters(c, &c.Groups[i], false)
		done += n
		if err != nil {
			o.Faults = append(o.Faults, cut(100, c.Groups[i].Handler)+": "+told(err))
		}
	}
	o.Text = fmt.Sprintf("%s: %s of %s selected", past[c.Do], count(done), count(len(c.Rows)))
	if done < len(c.Rows) && len(o.Faults) == 0 {
		o.Text += "; the others are no dead letters any more"
	}
	return o
}

var past = map[string]string{"redrive": "Redriven", "discard": "Discarded"}

func (v *visit) performPause(c *change, o outcome) outcome {
	var changed apiview.PauseChanged
	var err error
	if c.Do == "pause" {
		err = v.change(http.MethodPost, ofPath(c.Of, "/pauses"), nil,
			map[string]string{"kind": c.Kind, "name": c.Name, "why": c.Why}, &changed)
	} else {
		err = v.change(http.MethodDelete, ofPath(c.Of, "/pauses"), url.Values{"kind": {c.Kind}, "name": {c.Name}, "why": {c.Why}},
			nil, &changed)
	}
	switch {
	case err != nil:
		o.Faults = append(o.Faults, told(err))
	case changed.Changed:
		o.Text = map[string]string{"pause": "Paused: ", "resume": "Resumed: "}[c.Do] + c.Kind + " " + c.Name
	default:
		o.Text = "Nothing to do: " + c.Kind + " " + c.Name + " was so already"
	}
	return o
}

// told is an error as a visitor gets it.
func told(err error) string {
	if known, ok := errors.AsType[*httpjson.Problem](err); ok {
		return known.Detail
	}
	return "it failed: see the log"
}

// outcome is what became of a change.
type outcome struct {
	Text   string
	Faults []string
	Why    string
	Back   string
	At     time.Time
	Over   bool
}

// maxOutcomes caps the changes that are remembered.
const maxOutcomes = 200

// outcomes remember what became of the last changes, by whose they are and their numbers. The zero value remembers none.
type outcomes struct {
	mu    sync.Mutex
	known map[string]*outcome
	order []string
}

// begin says whether a change is to be done, or was begun before.
func (o *outcomes) begin(key string, now time.Time) (of *outcome, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if of = o.known[key]; of != nil {
		return of, false
	}
	if o.known == nil {
		o.known = map[string]*outcome{}
	}
	if len(o.order) == maxOutcomes {
		delete(o.known, o.order[0])
		o.order = o.order[1:]
	}
	of = &outcome{At: now.UTC()}
	o.known[key], o.order = of, append(o.order, key)
	return of, true
}

func (o *outcomes) set(of *outcome, is outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is.At, is.Over = of.At, true
	*of = is
}

func (o *outcomes) get(key string) (is outcome, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if of := o.known[key]; of != nil {
		return *of, true
	}
	return is, false
}

// outcomeKey is a change's number among those of the visitor.
func (v *visit) outcomeKey(once string) string { return v.formToken() + once }

func (v *visit) outcome() (any, error) {
	o, ok := v.page.done.get(v.outcomeKey(v.r.URL.Query().Get("change")))
	if !ok {
		return nil, problem(http.StatusNotFound,
			"this change is not remembered here any more, or was somebody else's; the audit has what was done")
	}
	return o, nil
}
