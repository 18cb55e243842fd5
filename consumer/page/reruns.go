package page

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/argtext"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

// A rerun is planned, confirmed, and then a job.

// rerunFields are the parameters by which messages to rerun are looked for.
var rerunFields = []string{"handler", "topic", "partition", "from_offset", "to_offset", "tenant", "id", "key", "since", "until",
	"ordering"}

// rerunPage asks what to rerun, and says what that would be of.
type rerunPage struct {
	list
	Fields map[string]string  // what was planned, times made fixed
	Plan   *apiview.RerunPlan // nil: nothing was asked for
	ID     string             // the job's, where it is asked for
	refusal
}

func (v *visit) rerun() (any, error) {
	l, query := v.asked(rerunFields...)
	query.Del("limit")
	query.Del("cursor")
	return v.plannedRerun(rerunPage{list: l}, query)
}

// plannedRerun plans what is asked for, if anything is.
func (v *visit) plannedRerun(p rerunPage, query url.Values) (any, error) {
	p.ID = uuid.NewString()
	if len(query) == 0 {
		return p, nil
	}
	var plan apiview.RerunPlan
	err := v.get("/reruns/plan", query, &plan)
	if known, ok := errors.AsType[*httpjson.Problem](err); ok && known.Status == http.StatusConflict {
		p.Fault = known.Detail
		return p, nil
	}
	if err := p.blame(err); err != nil || p.Fault != "" {
		return p, err
	}
	for name, at := range map[string]*time.Time{"since": plan.Filter.Since, "until": plan.Filter.Until} {
		if at != nil {
			query.Set(name, at.UTC().Format(time.RFC3339Nano)) // what is shown is what is done
		}
	}
	if plan.Filter.Ordering != nil {
		query.Set("ordering", *plan.Filter.Ordering)
	}
	p.Plan, p.Fields = &plan, fieldsOf(query, rerunFields)
	return p, nil
}

// newRerun is the body by which a rerun is made.
type newRerun struct {
	ID         string             `json:"id"`
	Handler    string             `json:"handler"`
	Topic      string             `json:"topic,omitempty"`
	Partition  *int64             `json:"partition,omitempty"`
	FromOffset *int64             `json:"from_offset,omitempty"`
	ToOffset   *int64             `json:"to_offset,omitempty"`
	Tenant     string             `json:"tenant,omitempty"`
	IDs        []string           `json:"ids,omitempty"`
	Key        *map[string]string `json:"key,omitempty"`
	Since      string             `json:"since,omitempty"`
	Until      string             `json:"until,omitempty"`
	Ordering   string             `json:"ordering,omitempty"`
	Set        string             `json:"set"`
	Why        string             `json:"why"`
}

// refusal is of a start that was asked for.
type refusal struct{ Why, Refused string }

// typed is what a form to start a job had that was refused.
func (v *visit) typed(page string, fields []string, refused error) (l list, query url.Values, why refusal) {
	l, query = list{Page: page, Filter: map[string]string{}}, only(v.r.PostForm, fields...)
	for name := range query {
		if l.Filter[name] = query.Get(name); l.Filter[name] == "" {
			query.Del(name)
		}
	}
	why = refusal{v.r.PostForm.Get("why"), told(refused)}
	if strings.TrimSpace(why.Why) == "" {
		why.Refused = "Say why: it is kept in the audit."
	}
	return l, query, why
}

// startRerun makes the job that was confirmed. Its ID came with the form: sent twice it is one job. Where it can't be
// made so, the plan is shown as it is now, with what is wrong and with what was typed.
func (v *visit) startRerun() error {
	body, err := newRerunOf(v.r.PostForm)
	if err == nil {
		err = v.makeJob("/reruns", body)
	}
	if status := statusOf(err); status != http.StatusBadRequest && status != http.StatusConflict {
		return err
	}
	l, query, why := v.typed("rerun", rerunFields, err)
	p := rerunPage{list: l, refusal: why}
	return v.show(&view{"Rerun", "rerun", false, func(*visit) (any, error) { return v.plannedRerun(p, query) }})
}

// newRerunOf reads the form of a plan.
func newRerunOf(form url.Values) (body newRerun, err error) {
	body = newRerun{ID: form.Get("job"), Handler: form.Get("handler"), Topic: form.Get("topic"), Tenant: form.Get("tenant"),
		Since: form.Get("since"), Until: form.Get("until"), Ordering: form.Get("ordering"), Set: form.Get("set"),
		Why: strings.TrimSpace(form.Get("why"))}
	if body.Set == "" {
		return body, problem(http.StatusBadRequest, "the form does not say what was planned")
	}
	if id := form.Get("id"); id != "" {
		body.IDs = []string{id}
	}
	if body.Key, err = keyOf(form); err != nil {
		return body, err
	}
	for name, number := range map[string]**int64{"partition": &body.Partition, "from_offset": &body.FromOffset,
		"to_offset": &body.ToOffset} {
		if *number, err = numberOf(form, name); err != nil {
			return body, err
		}
	}
	return body, nil
}

func numberOf(form url.Values, name string) (*int64, error) {
	text := form.Get(name)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, problem(http.StatusBadRequest, "%s is no number", name)
	}
	return &n, nil
}

// keyOf is a form's key as the API takes it; nil: there is none.
func keyOf(form url.Values) (*map[string]string, error) {
	text := form.Get("key")
	if text == "" {
		return nil, nil
	}
	key, err := argtext.Key(text)
	if err != nil {
		return nil, problem(http.StatusBadRequest, `the key has \x and then no hex digits`)
	}
	return &map[string]string{"base64": base64.StdEncoding.EncodeToString(key)}, nil
}
