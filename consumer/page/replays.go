package page

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"

	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

// A replay is planned, confirmed, and then a job.

// replayFields are what a replay is asked for by.
var replayFields = []string{"topic", "handler", "from", "to", "partitions", "rate", "skip_lost"}

// replayPage asks what to read again, and says what that would come to.
type replayPage struct {
	list
	Fields map[string]string   // what was planned, times made fixed
	Plan   *apiview.ReplayPlan // nil: nothing was asked for
	ID     string              // the job's, where it is asked for
	refusal
}

func (v *visit) replay() (any, error) {
	l, query := v.asked(replayFields...)
	return v.plannedReplay(replayPage{list: l}, query)
}

// plannedReplay plans what is asked for, if anything is.
func (v *visit) plannedReplay(p replayPage, query url.Values) (any, error) {
	p.ID = cmp.Or(p.ID, uuid.NewString())
	if len(without(only(query, replayFields...), "to")) == 0 {
		return p, nil
	}
	if rate, err := numberOf(query, "rate"); err != nil || rate != nil && *rate < 1 {
		p.Fault = "messages a second: say a number from 1 on, or nothing"
		return p, nil
	}
	asked := only(query, "topic", "handler", "from", "to")
	for _, n := range numbersIn(query.Get("partitions")) {
		asked.Add("partition", n)
	}
	if query.Has("skip_lost") {
		asked.Set("skip_lost", "true")
	}
	var plan apiview.ReplayPlan
	err := v.get("/replays/plan", asked, &plan)
	if known, ok := errors.AsType[*httpjson.Problem](err); ok && refusesPlan(known.Status) {
		p.Fault = known.Detail
		return p, nil
	}
	if err := p.blame(err); err != nil || p.Fault != "" {
		return p, err
	}
	p.Plan, p.Fields = &plan, fieldsOf(query, replayFields)
	p.Fields["from"], p.Fields["to"] = plan.Ask.From, plan.Ask.To // what is shown is what is done
	return p, nil
}

// refusesPlan says that a plan's problem is one that the visitor can do something about.
func refusesPlan(status int) bool {
	return status == http.StatusConflict || status == http.StatusNotImplemented || status == http.StatusServiceUnavailable
}

// numbersIn are those of a text that separates them by commas or spaces.
func numbersIn(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// newReplay is the body by which a replay is made.
type newReplay struct {
	ID         string  `json:"id"`
	Topic      string  `json:"topic"`
	Handler    string  `json:"handler,omitempty"`
	From       string  `json:"from"`
	To         string  `json:"to,omitempty"`
	Partitions []int64 `json:"partitions,omitempty"`
	Rate       *int64  `json:"rate,omitempty"`
	SkipLost   bool    `json:"skip_lost,omitempty"`
	Why        string  `json:"why"`
}

// startReplay makes the job that was confirmed. Its ID came with the form: sent twice it is one job. Where it can't be made
// so, the plan is shown as it is now, with what is wrong and with what was typed.
func (v *visit) startReplay() error {
	body, err := replayOf(v.r.PostForm)
	if err == nil {
		err = v.makeJob("/replays", body)
	}
	status := statusOf(err)
	if status != http.StatusBadRequest && !refusesPlan(status) {
		return err
	}
	l, query, why := v.typed("replay", replayFields, err)
	p := replayPage{list: l, refusal: why}
	if status != http.StatusConflict { // else it may be another job's
		p.ID = body.ID
	}
	return v.show(&view{"Replay", "replay", false, func(*visit) (any, error) { return v.plannedReplay(p, query) }})
}

func replayOf(form url.Values) (body newReplay, err error) {
	body = newReplay{ID: form.Get("job"), Topic: form.Get("topic"), Handler: form.Get("handler"), From: form.Get("from"),
		To: form.Get("to"), SkipLost: form.Get("skip_lost") != "", Why: strings.TrimSpace(form.Get("why"))}
	for _, text := range numbersIn(form.Get("partitions")) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return body, problem(http.StatusBadRequest, "%s is no number of a partition", httpjson.Brief(text))
		}
		body.Partitions = append(body.Partitions, n)
	}
	body.Rate, err = numberOf(form, "rate")
	return body, err
}

// replayText is what a replay reads, in words.
func replayText(r *apiview.ReplayJob, f apiview.JobFilter) string {
	text := filterText(f) + ", from " + visible(r.From) + " to " + visible(r.To)
	if len(r.Partitions) > 0 {
		text += ", partitions " + joined(r.Partitions)
	}
	if r.Rate != nil {
		text += ", at most " + count(*r.Rate) + " messages a second"
	}
	if r.SkipLost {
		text += ", without those that are gone"
	}
	return text
}

func joined(numbers []int32) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(int(n))
	}
	return strings.Join(texts, ", ")
}
