package admin

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/cmd/internal/argtext"
	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
)

// kind is what a parameter's text has to be.
type kind string

const (
	text    kind = "text"
	number  kind = "number"
	boolean kind = "boolean"
	times   kind = "time"
	ids     kind = "ids" // may be given again
)

// parameter is one of a route's query, or of its path.
type parameter struct {
	name     string
	kind     kind
	doc      string
	inPath   bool
	required bool
	enum     []string
}

const (
	maxIDs       = 100
	maxPage      = 1000
	maxWhole     = 100 // of messages with their content
	defaultLimit = 50
)

var (
	topicParameter     = parameter{name: "topic", kind: text, doc: "The topic's name."}
	handlerParameter   = parameter{name: "handler", kind: text, doc: "The handler's name."}
	tenantParameter    = parameter{name: "tenant", kind: text, doc: "The tenant. Empty picks all tenants."}
	reasonParameter    = parameter{name: "reason", kind: text, doc: "The code of the last failure."}
	partitionParameter = parameter{name: "partition", kind: number, doc: "The partition's number."}
	idParameter        = parameter{name: "id", kind: ids,
		doc: "The ID as the producer wrote it, or the message's UUID. May be given again."}
	whyParameter = parameter{name: "why", kind: text, doc: "What for; kept in the audit.", required: true}

	filterParameters = []parameter{topicParameter, handlerParameter, tenantParameter,
		{name: "key", kind: text, doc: `The message's key, as text, or \x and hex digits.`},
		{name: "since", kind: times, doc: "Not before this time: RFC 3339, a date, or a duration before now, like 2h."},
		{name: "until", kind: times, doc: "Before this time."}, idParameter}
	pageParameters = []parameter{
		{name: "limit", kind: number, doc: "How many to give at most: 1 to 1000, 1 to 100 with content. Default 50."},
		{name: "cursor", kind: text, doc: "The next of the page before."}}
	contentParameter = parameter{name: "content", kind: boolean,
		doc: "true brings keys, headers and values along. Default false."}
)

func join(lists ...[]parameter) []parameter { return slices.Concat(lists...) }

// query reads a request's parameters, of which it knows the route's only. The first fault stays.
type query struct {
	known  []parameter
	values url.Values
	fault  *httpjson.Problem
}

func newQuery(r *http.Request, known []parameter) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{known: known, values: values}
	if err != nil {
		q.fault = httpjson.Errorf(http.StatusBadRequest, "the query can't be read; percent-encode what is not a letter or a digit")
		return q
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		q.check(name, values[name])
	}
	for _, p := range known {
		if p.inPath {
			q.values.Set(p.name, r.PathValue(p.name))
			q.checkText(p.name, r.PathValue(p.name))
		}
		if p.required && q.values.Get(p.name) == "" {
			q.refuse(p.name, "is required: %s", p.expected())
		}
	}
	return q
}

func (p parameter) expected() string {
	if len(p.enum) > 0 {
		return "one of " + strings.Join(p.enum, ", ")
	}
	return strings.ToLower(p.doc[:1]) + strings.TrimSuffix(p.doc[1:], ".")
}

func (q *query) refuse(name, format string, args ...any) {
	if q.fault == nil {
		q.fault = httpjson.Wrong(name, format, args...)
	}
}

// check holds one name and what was given for it against the route.
func (q *query) check(name string, given []string) {
	var names []string
	for _, p := range q.known {
		if p.inPath {
			continue
		}
		names = append(names, p.name)
		if p.name != name {
			continue
		}
		switch {
		case len(given) > 1 && p.kind != ids:
			q.refuse(name, "is given %d times; give it once", len(given))
		case len(given) > maxIDs:
			q.refuse(name, "is given %d times; at most %d IDs at once", len(given), maxIDs)
		case len(p.enum) > 0 && !slices.Contains(p.enum, given[0]):
			q.refuse(name, "%s is none of %s", httpjson.Brief(given[0]), strings.Join(p.enum, ", "))
		}
		for _, text := range given {
			q.checkText(name, text)
		}
		return
	}
	q.unknown(name, names)
}

// checkText wants what Postgres can take.
func (q *query) checkText(name, text string) {
	if fault := httpjson.CheckText(name, text); fault != nil && q.fault == nil {
		q.fault = fault
	}
}

func (q *query) unknown(name string, names []string) {
	switch near := config.Nearest(name, names); {
	case near != "":
		q.refuse(httpjson.Brief(name), "is no parameter here; did you mean %s?", near)
	case len(names) == 0:
		q.refuse(httpjson.Brief(name), "is no parameter here; there are none")
	default:
		q.refuse(httpjson.Brief(name), "is no parameter here; there are %s", strings.Join(names, ", "))
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) has(name string) bool { return q.values.Has(name) }

func (q *query) number(name string, least, most, otherwise int64) int64 {
	if !q.has(name) {
		return otherwise
	}
	n, err := strconv.ParseInt(q.text(name), 10, 64)
	if err != nil || n < least || n > most {
		q.refuse(name, "%s is not a number from %d to %d", httpjson.Brief(q.text(name)), least, most)
		return otherwise
	}
	return n
}

func (q *query) boolean(name string) bool {
	switch q.text(name) {
	case "true":
		return true
	case "false", "":
		return false
	}
	q.refuse(name, "%s is neither true nor false", httpjson.Brief(q.text(name)))
	return false
}

func (q *query) time(name string) time.Time {
	at, err := argtext.Time(q.text(name), time.Now())
	if err != nil {
		q.refuse(name, "%s is neither a duration like 2h nor a time like 2026-03-01T04:05:06Z", httpjson.Brief(q.text(name)))
	}
	return at
}

// ids are nil where none is given.
func (q *query) ids(name string) (found []uuid.UUID) {
	for _, text := range q.values[name] {
		found = append(found, q.id(name, text)...)
	}
	return found
}

func (q *query) id(name, text string) []uuid.UUID {
	found, err := identity.ParseIDs(text)
	if err != nil {
		q.refuse(name, "%s can't be the ID of a message", httpjson.Brief(text))
	}
	return found
}

// filter reads filterParameters, and reason where the route has it.
func (q *query) filter() operate.Filter {
	f := operate.Filter{Topic: q.text("topic"), Handler: q.text("handler"), Tenant: q.text("tenant"),
		Reason: q.text("reason"),
		From:   q.time("since"), To: q.time("until"), IDs: q.ids("id")}
	if q.has("key") {
		key, err := argtext.Key(q.text("key"))
		if err != nil {
			q.refuse("key", `%s has \x and then no hex digits`, httpjson.Brief(q.text("key")))
		}
		f.Key = key
	}
	return f
}

// page reads pageParameters.
func (q *query) page(most int) (after operate.Cursor, limit int) {
	return operate.Cursor(q.text("cursor")), int(q.number("limit", 1, int64(most), defaultLimit))
}
