package admin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/firstseen/firstseen/cmd/internal/argtext"
	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

const maxBody = 1 // MiB

// readBody reads a JSON object into a struct, and takes no field that the struct has not.
func readBody(w http.ResponseWriter, r *http.Request, into any) *httpjson.Problem {
	content, fault := httpjson.Body(w, r, maxBody)
	if fault != nil {
		return fault
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(content, &fields); err != nil || fields == nil {
		return httpjson.Errorf(http.StatusBadRequest, "the body is not one JSON object")
	}
	names := fieldNames(reflect.TypeOf(into).Elem())
	for name := range fields {
		q := query{}
		if !contains(names, name) {
			q.unknown(name, names)
			return q.fault
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return typeProblem(err)
	}
	return nil
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func fieldNames(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.Anonymous {
			names = append(names, fieldNames(f.Type)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

func typeProblem(err error) *httpjson.Problem {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		field := mistyped.Field[strings.LastIndexByte(mistyped.Field, '.')+1:]
		return httpjson.Wrong(field, "can't be a JSON %s; see /api/v1/openapi.json", mistyped.Value)
	}
	return httpjson.Errorf(http.StatusBadRequest, "a field of the body is not what it has to be; see /api/v1/openapi.json")
}

// BodyFilter are the fields by which a change picks dead letters.
type BodyFilter struct {
	Topic   string    `json:"topic,omitempty"`
	Handler string    `json:"handler,omitempty"`
	Tenant  string    `json:"tenant,omitempty" doc:"Empty picks all tenants."`
	Reason  string    `json:"reason,omitempty" doc:"The code of the last failure."`
	Key     *KeyBytes `json:"key,omitempty"`
	Since   string    `json:"since,omitempty" doc:"Died not before this time: RFC 3339, a date, or a duration before now, like 2h."`
	Until   string    `json:"until,omitempty" doc:"Died before this time."`
	IDs     []string  `json:"ids,omitempty" doc:"IDs as producers wrote them, or the messages' UUIDs. At most 1000."`
	All     bool      `json:"all,omitempty" doc:"All dead letters of the inbox; then nothing else may narrow them."`
}

// KeyBytes is a message's key: one of text and base64.
type KeyBytes struct {
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
}

const maxBodyIDs = 1000

// filter reads the fields, and says whether they narrow anything.
func (b *BodyFilter) filter() (f operate.Filter, narrow bool, fault *httpjson.Problem) {
	f = operate.Filter{Topic: b.Topic, Handler: b.Handler, Tenant: b.Tenant, Reason: b.Reason}
	q := query{}
	for name, text := range map[string]string{"topic": b.Topic, "handler": b.Handler, "tenant": b.Tenant,
		"reason": b.Reason} {
		q.checkText(name, text)
	}
	f.From, f.To = bodyTime(&q, "since", b.Since), bodyTime(&q, "until", b.Until)
	f.Key = b.Key.read(&q)
	if len(b.IDs) > maxBodyIDs {
		q.refuse("ids", "has %d IDs; at most %d at once", len(b.IDs), maxBodyIDs)
		return f, false, q.fault
	}
	for _, text := range b.IDs {
		f.IDs = append(f.IDs, q.id("ids", text)...)
	}
	narrow = f.Topic != "" || f.Handler != "" || f.Tenant != "" || f.Reason != "" || f.Key != nil || f.IDs != nil ||
		!f.From.IsZero() || !f.To.IsZero()
	return f, narrow, q.fault
}

func bodyTime(q *query, name, text string) time.Time {
	at, err := argtext.Time(text, time.Now())
	if err != nil {
		q.refuse(name, "%s is neither a duration like 2h nor a time like 2026-03-01T04:05:06Z", httpjson.Brief(text))
	}
	return at
}

func (k *KeyBytes) read(q *query) []byte {
	switch {
	case k == nil:
		return nil
	case (k.Text == nil) == (k.Base64 == nil):
		q.refuse("key", "has to have one of text and base64")
		return nil
	case k.Text != nil:
		return []byte(*k.Text)
	}
	key, err := base64.StdEncoding.DecodeString(*k.Base64)
	if err != nil {
		q.refuse("key", "is not base64")
	}
	return key
}
