package page

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/argtext"
)

// What is done to all dead letters that a filter matches is a job: it is counted, confirmed, and then done by whichever
// process runs, whether the visitor stays or not.

// bulkPage says what a job would be of.
type bulkPage struct {
	list
	Of      string // outbox, or empty: the inbox
	Kind    string
	Fields  map[string]string // the filter, times made fixed
	Preview apiview.JobPreview
	ID      string // the job's, where it is asked for
	Why     string
}

// Verb is what the job does.
func (p bulkPage) Verb() string {
	return map[string]string{"redrive": "Redrive", "discard": "Discard"}[p.Kind]
}

// Meaning is what that will do.
func (p bulkPage) Meaning() string { return meaning(change{Do: p.Kind, Of: p.Of}) }

func (v *visit) bulk() (any, error) {
	l, query := v.asked(append(letterFilter, "kind", "moment")...)
	p := bulkPage{list: l, Of: ofOutbox(v.r.URL.Query().Get("of")), Kind: l.Filter["kind"], ID: uuid.NewString()}
	query.Del("limit")
	query.Del("cursor")
	for _, name := range []string{"since", "until"} {
		if at, err := argtext.Time(query.Get(name), v.now); err == nil && !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano)) // what is shown is what is done
		}
	}
	p.Fields = fieldsOf(query, letterFilter)
	if err := p.blame(v.get(ofPath(p.Of, "/dead-letters/count"), query, &p.Preview)); err != nil {
		return nil, err
	}
	return p, nil
}

// fieldsOf are the fields of a job's form, of those that are named.
func fieldsOf(query url.Values, names []string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		if text := query.Get(name); text != "" {
			out[name] = text
		}
	}
	return out
}

func ofOutbox(of string) string {
	if of == "outbox" {
		return of
	}
	return ""
}

// ofPath is a path of the API for the inbox, or for the outbox.
func ofPath(of, path string) string {
	if of != "" {
		return "/" + of + path
	}
	return path
}

// newJob is the body by which a job is made.
type newJob struct {
	ID      string             `json:"id"`
	Kind    string             `json:"kind"`
	Topic   string             `json:"topic,omitempty"`
	Handler string             `json:"handler,omitempty"`
	Tenant  string             `json:"tenant,omitempty"`
	Reason  string             `json:"reason,omitempty"`
	Since   string             `json:"since,omitempty"`
	Until   string             `json:"until,omitempty"`
	IDs     []string           `json:"ids,omitempty"`
	Key     *map[string]string `json:"key,omitempty"`
	All     bool               `json:"all,omitempty"`
	Moment  string             `json:"moment"`
	Why     string             `json:"why"`
}

// startJob makes the job that was confirmed. Its ID came with the form: sent twice it is one job.
func (v *visit) startJob() error {
	form := v.r.PostForm
	job := newJob{ID: form.Get("job"), Kind: form.Get("kind"), Topic: form.Get("topic"), Handler: form.Get("handler"),
		Tenant: form.Get("tenant"), Reason: form.Get("reason"), Since: form.Get("since"), Until: form.Get("until"),
		Moment: form.Get("moment"), Why: strings.TrimSpace(form.Get("why"))}
	if id := form.Get("id"); id != "" {
		job.IDs = []string{id}
	}
	var err error
	if job.Key, err = keyOf(form); err != nil {
		return err
	}
	job.All = len(fieldsOf(form, letterFilter)) == 0
	return v.makeJob(ofPath(ofOutbox(form.Get("of")), "/jobs"), job)
}

// makeJob has the API make a job, and leads to it.
func (v *visit) makeJob(path string, body any) error {
	var made apiview.Job
	if err := v.change(http.MethodPost, path, nil, body, &made); err != nil {
		return err
	}
	v.redirect(link("job", "id", made.ID))
	return nil
}

// jobsPage lists jobs.
type jobsPage struct {
	list
	Of   string
	Jobs []apiview.Job
}

func (v *visit) jobs() (any, error) {
	l, query := v.asked()
	p := jobsPage{list: l, Of: ofOutbox(v.r.URL.Query().Get("of"))}
	var found apiview.Jobs
	if err := p.blame(v.get(ofPath(p.Of, "/jobs"), query, &found)); err != nil {
		return nil, err
	}
	p.Jobs = found.Jobs
	if found.Next != nil {
		p.Next = link("jobs", "of", p.Of, "cursor", *found.Next)
	}
	if p.First != "" {
		p.First = link("jobs", "of", p.Of)
	}
	return p, nil
}

// jobPage is one job.
type jobPage struct{ apiview.Job }

// Verb is what the job does.
func (p jobPage) Verb() string {
	return map[string]string{"redrive": "Redrive", "discard": "Discard", "rerun": "Rerun", "replay": "Replay"}[p.Kind]
}

// Open says that the job is not over.
func (p jobPage) Open() bool { return p.FinishedAt == nil }

// patience is the time after which a job that nobody works on is told to be one.
const patience = 30 * time.Second

// Neglected says that no process has taken the job up, though there was time.
func (p jobPage) Neglected() bool {
	return p.State == "queued" && p.WorkedAt == nil && p.CreatedAt != nil && time.Since(*p.CreatedAt) > patience
}

// All counts the messages that the job has been through.
func (p jobPage) All() int64 { return p.Done + p.Skipped + p.Failed }

func (v *visit) job() (any, error) {
	var p jobPage
	err := v.get("/jobs/"+url.PathEscape(v.r.URL.Query().Get("id")), nil, &p.Job)
	return p, err
}

func (v *visit) cancelJob() error { return v.changeJob("cancel") }
func (v *visit) pauseJob() error  { return v.changeJob("pause") }
func (v *visit) resumeJob() error { return v.changeJob("resume") }

func (v *visit) changeJob(verb string) error {
	id := v.r.PostForm.Get("id")
	var job apiview.Job
	err := v.change(http.MethodPost, "/jobs/"+url.PathEscape(id)+"/"+verb, nil,
		map[string]string{"why": strings.TrimSpace(v.r.PostForm.Get("why"))}, &job)
	if err == nil {
		v.redirect(link("job", "id", id))
	}
	return err
}

// filterText is what a job picks messages by, in words.
func filterText(f apiview.JobFilter) string {
	var parts []string
	for _, p := range []struct {
		name string
		text *string
	}{{"handler", f.Handler}, {"topic", f.Topic}, {"tenant", f.Tenant}, {"reason", f.Reason}} {
		if p.text != nil {
			parts = append(parts, p.name+" "+visible(*p.text))
		}
	}
	for _, p := range []struct {
		name   string
		number *int64
	}{{"from offset", f.FromOffset}, {"to before offset", f.ToOffset}} {
		if f.Partition != nil && p.number != nil {
			parts = append(parts, fmt.Sprintf("partition %d %s %d", *f.Partition, p.name, *p.number))
		}
	}
	if f.Key != nil {
		parts = append(parts, "key "+visible(string(bytes.TrimSpace(rawOf(f.Key)))))
	}
	if m := momentOf(f.Since); m != nil {
		parts = append(parts, "since "+m.Text)
	}
	if m := momentOf(f.Until); m != nil {
		parts = append(parts, "until "+m.Text)
	}
	if len(f.IDs) > 0 {
		parts = append(parts, count(len(f.IDs))+" IDs")
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}
