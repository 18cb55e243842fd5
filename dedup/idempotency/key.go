package idempotency

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Header is where a key is looked for first (draft-ietf-httpapi-idempotency-key-header-07).
const Header = "Idempotency-Key"

// MaxKeyChars is how long a key may be, in characters, without the space around it.
const MaxKeyChars = 200

// keyRule says where keys are, and what they may be.
type keyRule struct {
	field    string // the body's field; empty: none is looked at
	required bool
	uuidOnly bool
}

// find is the request's key; empty: it has none. body is nil where the request's is no JSON. An error says what is
// wrong with it, and where, and never the key.
func (k keyRule) find(h http.Header, body []byte) (string, error) {
	key, err := k.headerKey(h)
	if err != nil {
		return "", fmt.Errorf("the header %s: %w", Header, err)
	}
	inBody, err := k.bodyKey(body)
	if err != nil {
		return "", fmt.Errorf("the body's field %s: %w", k.field, err)
	}
	switch {
	case key == "":
		key = inBody
	case inBody != "" && inBody != key:
		return "", fmt.Errorf("the header %s and the body's field %s are different keys: send one", Header, k.field)
	}
	if key == "" && k.required {
		return "", fmt.Errorf("a key is required: send the header %s, the same at each try of one request", Header)
	}
	return key, nil
}

func (k keyRule) headerKey(h http.Header) (string, error) {
	values := h.Values(Header)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", errors.New("there is more than one")
	}
	text := strings.TrimSpace(values[0])
	if strings.HasPrefix(text, `"`) {
		inside, err := structuredString(text)
		if err != nil {
			return "", err
		}
		text = inside
	}
	return k.check(text)
}

// structuredString is the inside of a String of RFC 9651, section 3.3.3. Parameters behind it have no meaning.
func structuredString(text string) (string, error) {
	var inside strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return inside.String(), checkParameters(text[i+1:])
		case c == '\\':
			if i++; i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", errors.New(`a backslash stands before " or \ only (RFC 9651)`)
			}
			inside.WriteByte(text[i])
		case c < 0x20 || c > 0x7e:
			return "", errors.New("a quoted key has ASCII characters only (RFC 9651)")
		default:
			inside.WriteByte(c)
		}
	}
	return "", errors.New("its quote is not closed")
}

func checkParameters(rest string) error {
	if rest = strings.TrimSpace(rest); rest != "" && !strings.HasPrefix(rest, ";") {
		return errors.New("something follows the quoted key (RFC 9651)")
	}
	return nil
}

// bodyKey reads a field of the JSON object at the top of the body. What is no such object has none.
func (k keyRule) bodyKey(body []byte) (key string, err error) {
	if k.field == "" {
		return "", nil
	}
	values, err := fieldValues(body, k.field)
	switch {
	case err != nil || len(values) == 0:
		return "", nil //nolint:nilerr // what is no JSON is the handler's to refuse
	case len(values) > 1:
		return "", errors.New("there is more than one")
	}
	if err := json.Unmarshal(values[0], &key); err != nil { // null is no error, and no key
		return "", errors.New("it is no string")
	}
	return k.check(strings.TrimSpace(key))
}

// fieldValues are the values of an object's field, each time that it is there.
func fieldValues(body []byte, field string) (values []json.RawMessage, err error) {
	if !json.Valid(body) {
		return nil, errors.New("no JSON")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if name == field {
			values = append(values, value)
		}
	}
	return values, nil
}

// check takes the space away from a key's ends; what is left may be nothing, which is no key.
func (k keyRule) check(text string) (string, error) {
	key := strings.TrimSpace(text)
	switch {
	case key == "":
		return "", nil
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
		return "", errors.New("it is not UTF-8, or has control characters in it")
	case utf8.RuneCountInString(key) > MaxKeyChars:
		return "", fmt.Errorf("it is longer than %d characters", MaxKeyChars)
	case !k.uuidOnly:
		return key, nil
	}
	id, err := uuid.Parse(key)
	if err != nil || len(key) != 36 {
		return "", errors.New("it is no UUID of the form 0190b5e2-7c1a-7def-8123-456789abcdef")
	}
	return id.String(), nil
}
