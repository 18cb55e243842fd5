package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/firstseen/firstseen/dedup"
)

// JSONDecoder reads values in JSON with encoding/json, and of a topic with a [Format] what that has made of them.
type JSONDecoder[T any] struct{}

// Decode reads one. Its error has the byte at which the JSON is broken, or the JSON pointer (RFC 6901) of what is not
// as T wants it, with * for what is a key of a map.
func (JSONDecoder[T]) Decode(m dedup.Message) (v T, err error) {
	body, err := m.Body()
	if err != nil {
		return v, err
	}
	if err = json.Unmarshal(body, &v); err == nil {
		return v, nil
	}
	return v, jsonFault(body, err, func(doc []byte) error { return json.Unmarshal(doc, new(T)) })
}

// jsonFault says what encoding/json has found without its words, which quote the document.
func jsonFault(doc []byte, err error, decode func(doc []byte) error) error {
	var broken *json.SyntaxError
	if errors.As(err, &broken) {
		if broken.Offset >= int64(len(doc)) {
			return fmt.Errorf("read JSON: it ends too early, at byte %d", len(doc))
		}
		return fmt.Errorf("read JSON: it is broken at byte %d of %d", broken.Offset, len(doc))
	}
	place := jsonPlace(doc, err, decode)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		kind, _, _ := strings.Cut(wrong.Value, " ") // "number 12.5"
		return fmt.Errorf("read JSON: %s at %q, want %s", kind, place, wrong.Type)
	}
	return fmt.Errorf("read JSON: the value at %q is refused by its type", place)
}

// maxJSONSteps bounds a place, and the time that it takes to find it.
const maxJSONSteps = 16

// jsonPlace is the JSON pointer of the smallest part of a document that fails by itself as the whole does.
func jsonPlace(doc []byte, whole error, decode func(doc []byte) error) (pointer string) {
	before, after, part := "", "", json.RawMessage(doc)
	for range maxJSONSteps {
		next, found := jsonCulprit(part, whole, func(doc string) error { return decode([]byte(before + doc + after)) })
		if !found {
			break
		}
		pointer += "/" + next.name
		before, after, part = before+next.open, next.shut+after, next.value
	}
	return pointer
}

// jsonCulprit is the first part that fails within its object or array as the whole does, where that does not without it.
func jsonCulprit(doc json.RawMessage, whole error, decode func(doc string) error) (culprit jsonPart, found bool) {
	fails := func(err error) bool { return err != nil && err.Error() == whole.Error() }
	for p := range jsonParts(doc) {
		if !fails(decode(p.open + string(p.value) + p.shut)) {
			continue
		}
		if fails(decode(p.none)) {
			break
		}
		if p.other != "" && decode(p.other+string(p.value)+p.shut) != nil {
			p.name = "*" // a field's other name would not be looked at
		}
		return p, true
	}
	return jsonPart{}, false
}

// jsonPart is a member of an object, or an element of an array.
type jsonPart struct {
	name       string // in a pointer
	open, shut string // what makes it the only one
	other      string // open of a member with another name
	none       string // what it is in, without it
	value      json.RawMessage
}

func jsonParts(doc json.RawMessage) iter.Seq[jsonPart] {
	return func(yield func(jsonPart) bool) {
		d := json.NewDecoder(bytes.NewReader(doc))
		start, _ := d.Token()
		if _, ok := start.(json.Delim); !ok {
			return
		}
		for i := 0; d.More(); i++ {
			p := jsonPart{name: strconv.Itoa(i), open: "[", shut: "]", none: "[]"}
			if start == json.Delim('{') {
				name, _ := d.Token()
				p = jsonMember(name)
			}
			if d.Decode(&p.value) != nil || !yield(p) {
				return
			}
		}
	}
}

func jsonMember(token json.Token) jsonPart {
	name, _ := token.(string)
	return jsonPart{name: strings.NewReplacer("~", "~0", "/", "~1").Replace(name), shut: "}", none: "{}",
		open: jsonName(name), other: jsonName(name + "\x00")}
}

// jsonName begins an object with a member of the name.
func jsonName(name string) string {
	quoted, _ := json.Marshal(name) // a string can always be
	return "{" + string(quoted) + ":"
}
