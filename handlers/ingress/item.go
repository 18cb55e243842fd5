package ingress

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/request"
)

// keyField is the body's field that may have the key, for a message of its own. In an array each has its own.
const keyField = "idempotencyKey"

// item is a message that a client has written.
type item struct {
	written
	idempotencyKey string
	hash           []byte // of all that was asked for, but the key
}

// written is a message as a client writes it. The tags of this and of what it has are what the OpenAPI document says.
type written struct {
	IdempotencyKey *string         `json:"idempotencyKey" maxLength:"200" doc:"The key, where it is not in the header. In an array each message has its own here. Of space alone it is none."`
	Content        json.RawMessage `json:"content" doc:"The message's value: any JSON value, kept byte for byte."`
	Template       *Template       `json:"template" doc:"Stands for the content, which a function of the program makes of it, where the topic has one."`
	Key            *string         `json:"key" maxLength:"1000" doc:"The message's key, as in Kafka."`
	Headers        []header        `json:"headers" doc:"The message's headers, as in Kafka."`
	Participants   []participant   `json:"participants" maxItems:"1000" doc:"Whom the message is from and to."`
}

// header is one of a message's. A value that is no text is told in base64, and can't be posted.
type header struct {
	Name   string `json:"name" minLength:"1" maxLength:"1000"`
	Value  string `json:"value"`
	Base64 []byte `json:"value_base64,omitempty" doc:"Instead of the value, where that is no text."`
}

// participant is whom a message is from or to.
type participant struct {
	Role    string  `json:"role" enum:"sender,to,cc,bcc,reply-to"`
	Address string  `json:"address" minLength:"1" maxLength:"1000"`
	Name    *string `json:"name,omitempty" maxLength:"1000"`
}

// roles are a participant's, in a mail.
var roles = []string{"sender", "to", "cc", "bcc", "reply-to"}

// Bounds of what a message has beside its content.
const (
	maxText         = 1000 // characters of an address or a name
	maxKey          = 1000 // and of a message's key
	maxParticipants = 1000
)

// items are the messages of a request's body: one, or an array.
func (x *exchange) items(body []byte) (list []*item, many bool, p *request.Problem) {
	kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil, false, refusal(http.StatusUnsupportedMediaType, codeNotJSON,
			"Send the body as JSON, with the header Content-Type: application/json.")
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, false, refusal(http.StatusBadRequest, codeNotJSON, "The body is no JSON in UTF-8.")
	}
	if body = bytes.TrimSpace(body); body[0] != '[' {
		one, p := itemOf(x.r.Header, body)
		return []*item{one}, false, p
	}
	list, p = x.array(body)
	return list, true, p
}

// array are the messages of an array. It is refused whole for the first that can't be one.
func (x *exchange) array(body []byte) ([]*item, *request.Problem) {
	if len(x.r.Header.Values(request.KeyHeader)) > 0 {
		return nil, refusal(http.StatusBadRequest, codeKey, "The messages of an array have their keys in their own fields "+
			keyField+", and not in the header "+request.KeyHeader+".")
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil || len(raw) == 0 || len(raw) > x.cfg.MaxMessages {
		return nil, refusal(http.StatusBadRequest, codeInvalid,
			fmt.Sprintf("An array has 1 to %d messages.", x.cfg.MaxMessages))
	}
	list := make([]*item, len(raw))
	for i := range raw {
		var p *request.Problem
		if list[i], p = itemOf(http.Header{}, raw[i]); p != nil {
			return nil, ofItem(i, p)
		}
	}
	return list, nil
}

// ofItem says which message of an array a problem is about.
func ofItem(i int, p *request.Problem) *request.Problem {
	p.Detail = fmt.Sprintf("Message %d of the array: %s", i, p.Detail)
	return p
}

// itemOf reads one message. h has the request's headers where it is the only one.
func itemOf(h http.Header, body []byte) (*item, *request.Problem) {
	key, err := request.KeyRule{Field: keyField}.Find(h, body)
	if err != nil {
		return nil, refusal(http.StatusBadRequest, codeKey, err.Error())
	}
	it := &item{idempotencyKey: key}
	if err := it.decode(body); err != nil {
		return nil, refusal(http.StatusBadRequest, codeInvalid, err.Error())
	}
	return it, nil
}

func (it *item) decode(body []byte) error {
	given, err := fieldsOf(body)
	if err != nil {
		return err
	}
	delete(given, keyField)
	it.hash = hashOf(given)
	fields := it.fields()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field := fields[name]
		if field == nil {
			return fmt.Errorf("a message has no field of the name that it was given; it has %s, %s",
				keyField, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if err := strictly(given[name], field); err != nil {
			return fmt.Errorf("the field %s is not what it should be", name)
		}
	}
	return it.validate()
}

// fields has the places of a body's fields by their names, but for the key.
func (m *written) fields() map[string]any {
	return map[string]any{"content": &m.Content, "template": &m.Template, "key": &m.Key, "headers": &m.Headers,
		"participants": &m.Participants}
}

// fieldsOf are an object's fields by their exact names, none of them twice.
func fieldsOf(body []byte) (map[string]json.RawMessage, error) {
	list, err := request.Fields(body)
	if err != nil {
		return nil, errors.New("a message is a JSON object")
	}
	fields := map[string]json.RawMessage{}
	for _, f := range list {
		if _, twice := fields[f.Name]; twice {
			return nil, errors.New("the message has a field twice")
		}
		fields[f.Name] = f.Value
	}
	return fields, nil
}

// strictly reads a value that has no other fields than into.
func strictly(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// hashOf stands for what was asked for. White space, the order of fields and the spelling of numbers don't matter.
func hashOf(fields map[string]json.RawMessage) []byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		h.Write([]byte(name))
		h.Write(identity.FingerprintJSON.Of(fields[name]))
	}
	return h.Sum(nil)
}

// validate checks what the types don't. Its errors name the field, and show no value.
func (it *item) validate() error {
	switch {
	case (it.Content == nil) == (it.Template == nil):
		return errors.New("a message has either content or a template")
	case it.Template != nil && (!isText(it.Template.Key) || !isTextOrNone(it.Template.Version)):
		return errors.New("a template has a key, and maybe a version and variables")
	case it.Key != nil && utf8.RuneCountInString(*it.Key) > maxKey:
		return fmt.Errorf("the key has more than %d characters", maxKey)
	case len(it.Participants) > maxParticipants:
		return fmt.Errorf("there are more than %d participants", maxParticipants)
	}
	for i, h := range it.Headers {
		if !isText(h.Name) || h.Base64 != nil {
			return fmt.Errorf("headers[%d] has no name of up to %d characters, or a value that is no text", i, maxText)
		}
	}
	for i, p := range it.Participants {
		if !slices.Contains(roles, p.Role) || !isText(p.Address) || p.Name != nil && !isTextOrNone(*p.Name) {
			return fmt.Errorf("participants[%d] has to have a role (%s), an address and maybe a name, of up to %d "+
				"characters each", i, strings.Join(roles, ", "), maxText)
		}
	}
	return nil
}

// isText says that a text is one that people can read and Postgres can keep.
func isText(text string) bool { return strings.TrimSpace(text) != "" && isTextOrNone(text) }

func isTextOrNone(text string) bool {
	return utf8.RuneCountInString(text) <= maxText && !strings.ContainsFunc(text, unicode.IsControl)
}
