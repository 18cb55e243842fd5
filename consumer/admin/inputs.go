package admin

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/argtext"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/operate"
)

const (
	maxIDs     = 100
	maxPage    = 1000
	maxWhole   = 100 // of messages with their content
	maxBodyIDs = 1000
)

// moment is a time, or a duration before now.
type moment struct{ time.Time }

func (m *moment) UnmarshalText(text []byte) (err error) {
	if m.Time, err = argtext.Time(string(text), time.Now()); err != nil {
		return fmt.Errorf("%s is neither a duration like 2h nor a time like 2026-03-01T04:05:06Z",
			httpjson.Brief(string(text)))
	}
	return nil
}

func (moment) Schema(huma.Registry) *huma.Schema { return momentSchema() }

// momentText is a moment in a body. What it says is read later.
type momentText string

func (momentText) Schema(huma.Registry) *huma.Schema { return momentSchema() }

func momentSchema() *huma.Schema {
	is := func(format, pattern string) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Format: format, Pattern: pattern}
	}
	return &huma.Schema{Type: huma.TypeString,
		AnyOf: []*huma.Schema{is("date-time", ""), is("date", ""), is("", withoutZone), is("", goDuration)}}
}

// A time without a zone, which is UTC then, and a duration, or nothing.
const (
	withoutZone = `^[0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|[12][0-9])|(0[13-9]|1[0-2])-30|(0[13578]|1[02])-31)` +
		`(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?| ([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?)$`
	goDuration = `^(\+?(([0-9]{1,6}(\.[0-9]*)?h|[0-9]{1,8}(\.[0-9]*)?m|[0-9]{1,9}(\.[0-9]*)?s|` +
		`[0-9]{1,12}(\.[0-9]*)?(ns|us|µs|μs|ms)|\.[0-9]+(ns|us|µs|μs|ms|s|m|h))+|0))?$`
)

// textPattern is a text that Postgres takes.
const textPattern = `^[^\x00]*$`

// optional is a number that need not be given.
type optional[T any] struct {
	value T
	given bool
}

// Receiver and OnParamSet are called by huma to set it.
func (o *optional[T]) Receiver() reflect.Value      { return reflect.ValueOf(&o.value).Elem() }
func (o *optional[T]) OnParamSet(given bool, _ any) { o.given = given }
func (o optional[T]) Schema(r huma.Registry) *huma.Schema {
	return huma.SchemaFromType(r, reflect.TypeFor[T]())
}

// FilterInput narrows a list. It is exported, as all that is embedded, for huma sees it only so.
type FilterInput struct {
	Topic   string   `query:"topic" doc:"The topic's name."`
	Handler string   `query:"handler" doc:"The handler's name."`
	Tenant  string   `query:"tenant" doc:"The tenant. Empty picks all tenants."`
	Key     string   `query:"key" doc:"The message's key, as text, or \\x and hex digits."`
	Since   moment   `query:"since" doc:"Not before this time: RFC 3339, a date, or a duration before now, like 2h."`
	Until   moment   `query:"until" doc:"Before this time."`
	IDs     []string `query:"id,explode" maxItems:"100" pattern:"^[^\\x00]*[^\\x00-\\x20][^\\x00]*$" patternDescription:"an ID, which is not blank" doc:"The ID as the producer wrote it, or the message's UUID. May be given again."`

	filter operate.Filter
}

// Resolve reads what huma takes for texts. What is given empty is not left out: it is a key, and no ID.
func (f *FilterInput) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	given := u.Query()
	ids, err := parseIDs("id", given["id"])
	if err != nil {
		return []error{err}
	}
	f.filter = operate.Filter{Topic: f.Topic, Handler: f.Handler, Tenant: f.Tenant,
		From: f.Since.Time, To: f.Until.Time, IDs: ids}
	if given.Has("key") {
		if f.filter.Key, err = argtext.Key(f.Key); err != nil {
			return []error{httpjson.Wrong("key", `%s has \x and then no hex digits`, httpjson.Brief(f.Key))}
		}
	}
	return nil
}

// parseIDs gives nil where there is none.
func parseIDs(name string, texts []string) (found []uuid.UUID, err error) {
	for _, text := range texts {
		ids, err := identity.ParseIDs(text)
		if err != nil {
			return nil, httpjson.Wrong(name, "%s can't be the ID of a message", httpjson.Brief(text))
		}
		found = append(found, ids...)
	}
	return found, nil
}

// PageInput picks a part of a list.
type PageInput struct {
	Limit  int64  `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"How many to give at most: 1 to 1000, 1 to 100 with content."`
	Cursor string `query:"cursor" doc:"The next of the page before."`
}

func (p *PageInput) read(most int64) (after operate.Cursor, limit int, err error) {
	if p.Limit > most {
		return "", 0, httpjson.Wrong("limit", "%d is not a number from 1 to %d", p.Limit, most)
	}
	return operate.Cursor(p.Cursor), int(p.Limit), nil
}

// ListInput has the parameters of all lists of messages.
type ListInput struct {
	FilterInput
	Content bool `query:"content" doc:"true brings keys, headers and values along. Default false."`
	PageInput
}

func (l *ListInput) page() (after operate.Cursor, limit int, err error) {
	if l.Content {
		return l.read(maxWhole)
	}
	return l.read(maxPage)
}

// checkQuery holds a request against the parameters of its operation. huma would take a name twice, 1 for true and a
// text that Postgres does not, and does not say what a parameter can be.
func checkQuery(r *http.Request, known []*huma.Param) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return httpjson.Errorf(http.StatusBadRequest,
			"the query can't be read; percent-encode what is not a letter or a digit")
	}
	var names []string
	schemas := map[string]*huma.Schema{}
	for _, p := range known {
		if p.In == "query" {
			names, schemas[p.Name] = append(names, p.Name), p.Schema
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if schemas[name] == nil {
			return unknown(httpjson.Brief(name), names)
		}
		if fault := checkGiven(name, values[name], schemas[name]); fault != nil {
			return fault
		}
	}
	return checkRequired(r, values, known)
}

// checkGiven holds what is given for one name against its schema.
func checkGiven(name string, given []string, s *huma.Schema) *httpjson.Problem {
	least, most := bounds(s)
	switch first := given[0]; {
	case len(given) > 1 && s.Type != huma.TypeArray:
		return httpjson.Wrong(name, "is given %d times; give it once", len(given))
	case len(given) > maxIDs:
		return httpjson.Wrong(name, "is given %d times; at most %d IDs at once", len(given), maxIDs)
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, any(first)):
		return httpjson.Wrong(name, "%s is none of %s", httpjson.Brief(first), choices(s))
	case s.Type == huma.TypeBoolean && first != "true" && first != "false" && first != "":
		return httpjson.Wrong(name, "%s is neither true nor false", httpjson.Brief(first))
	case s.Type == huma.TypeInteger && !isWithin(first, least, most):
		return httpjson.Wrong(name, "%s is not a number from %d to %d", httpjson.Brief(first), least, most)
	}
	for _, text := range given {
		if fault := httpjson.CheckText(name, text); fault != nil {
			return fault
		}
	}
	return nil
}

func checkRequired(r *http.Request, values url.Values, known []*huma.Param) error {
	for _, p := range known {
		if p.In == "path" {
			if fault := httpjson.CheckText(p.Name, r.PathValue(p.Name)); fault != nil {
				return fault
			}
		} else if p.Required && values.Get(p.Name) == "" {
			return required(p.Name, p.Schema)
		}
	}
	return nil
}

func bounds(s *huma.Schema) (least, most int64) {
	most = math.MaxInt64
	if s.Minimum != nil {
		least = int64(*s.Minimum)
	}
	if s.Maximum != nil {
		most = int64(*s.Maximum)
	}
	return least, most
}

func isWithin(text string, least, most int64) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && least <= n && n <= most
}

// BodyFilter are the fields by which a change picks dead letters.
type BodyFilter struct {
	Topic   string     `json:"topic,omitempty"`
	Handler string     `json:"handler,omitempty"`
	Tenant  string     `json:"tenant,omitempty" doc:"Empty picks all tenants."`
	Reason  string     `json:"reason,omitempty" doc:"The code of the last failure."`
	Key     *KeyBytes  `json:"key,omitempty"`
	Since   momentText `json:"since,omitempty" doc:"Died not before this time: RFC 3339, a date, or a duration before now, like 2h."`
	Until   momentText `json:"until,omitempty" doc:"Died before this time."`
	IDs     []string   `json:"ids,omitempty" maxItems:"1000" maxLength:"1024" pattern:"^[^\\x00]*[^\\x00-\\x20][^\\x00]*$" patternDescription:"an ID, which is not blank" doc:"IDs as producers wrote them, or the messages' UUIDs. At most 1000."`
	All     bool       `json:"all,omitempty" doc:"All dead letters of the inbox; then nothing else may narrow them."`
}

// KeyBytes is a message's key: one of text and base64.
type KeyBytes struct {
	_      struct{} `additionalProperties:"false"`
	Text   *string  `json:"text,omitempty"`
	Base64 *string  `json:"base64,omitempty" pattern:"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$" patternDescription:"base64"`
}

// TransformSchema says that it is one of both, and not both.
func (KeyBytes) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.MinProperties, s.MaxProperties = new(1), new(1)
	return s
}

// filter reads the fields, and says whether they narrow anything.
func (b *BodyFilter) filter() (f operate.Filter, narrow bool, err error) {
	f = operate.Filter{Topic: b.Topic, Handler: b.Handler, Tenant: b.Tenant, Reason: b.Reason}
	for name, text := range map[string]string{"topic": b.Topic, "handler": b.Handler, "tenant": b.Tenant,
		"reason": b.Reason} {
		if fault := httpjson.CheckText(name, text); fault != nil {
			return f, false, fault
		}
	}
	if len(b.IDs) > maxBodyIDs {
		return f, false, httpjson.Wrong("ids", "has %d IDs; at most %d at once", len(b.IDs), maxBodyIDs)
	}
	if f.IDs, err = parseIDs("ids", b.IDs); err != nil {
		return f, false, err
	}
	if f.From, err = bodyTime("since", b.Since); err != nil {
		return f, false, err
	}
	if f.To, err = bodyTime("until", b.Until); err != nil {
		return f, false, err
	}
	f.Key, err = b.Key.read()
	narrow = f.Topic != "" || f.Handler != "" || f.Tenant != "" || f.Reason != "" || f.Key != nil || f.IDs != nil ||
		!f.From.IsZero() || !f.To.IsZero()
	return f, narrow, err
}

func bodyTime(name string, text momentText) (time.Time, error) {
	var m moment
	if err := m.UnmarshalText([]byte(text)); err != nil {
		return m.Time, httpjson.Wrong(name, "%s", err)
	}
	return m.Time, nil
}

func (k *KeyBytes) read() ([]byte, error) {
	switch {
	case k == nil:
		return nil, nil
	case (k.Text == nil) == (k.Base64 == nil):
		return nil, httpjson.Wrong("key", "has to have one of text and base64")
	case k.Text != nil:
		return []byte(*k.Text), nil
	}
	key, err := base64.StdEncoding.DecodeString(*k.Base64)
	if err != nil {
		return nil, httpjson.Wrong("key", "is not base64")
	}
	return key, nil
}
