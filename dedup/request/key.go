package request

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

// KeyHeader is looked at first for a key (draft-ietf-httpapi-idempotency-key-header-07).
const KeyHeader = "Idempotency-Key"

// MaxKeyChars caps a key's length, in characters, without the space around it.
const MaxKeyChars = 200

// KeyRule says where keys are, and what they may be.
type KeyRule struct {
	// Field is the body's field; empty: none is looked at.
	Field string
	// Required refuses requests without a key.
	Required bool
	// UUIDOnly refuses keys that are no UUIDs.
	UUIDOnly bool
}

// Find is the request's key, without the space around it; empty: it has none. body is nil where the request's is no
// JSON. An error says what is wrong with it, and where, and never the key.
func (k KeyRule) Find(h http.Header, body []byte) (string, error) {
	key, err := k.headerKey(h)
	if err != nil {
		return "", fmt.Errorf("the header %s: %w", KeyHeader, err)
	}
	inBody, err := k.bodyKey(body)
	if err != nil {
		return "", fmt.Errorf("the body's field %s: %w", k.Field, err)
	}
	switch {
	case key == "":
		key = inBody
	case inBody != "" && inBody != key:
		return "", fmt.Errorf("the header %s and the body's field %s are different keys: send one", KeyHeader, k.Field)
	}
	if key == "" && k.Required {
		return "", fmt.Errorf("a key is required: send the header %s, the same at each try of one request", KeyHeader)
	}
	return key, nil
}

func (k KeyRule) headerKey(h http.Header) (string, error) {
	values := h.Values(KeyHeader)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", errors.New("there is more than one")
	}
	return k.parse(values[0])
}

// ParseKey is the key that a text stands for as the header's value, without space or quotes around it; empty: none. An
// error says what is wrong with it, and never the key.
func ParseKey(text string) (string, error) { return KeyRule{}.parse(text) }

func (k KeyRule) parse(text string) (string, error) {
	text = strings.TrimSpace(text)
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
func (k KeyRule) bodyKey(body []byte) (key string, err error) {
	if k.Field == "" {
		return "", nil
	}
	fields, err := Fields(body)
	if err != nil {
		return "", nil //nolint:nilerr // what is no JSON object is the handler's to refuse
	}
	var found []json.RawMessage
	for _, f := range fields {
		if f.Name == k.Field {
			found = append(found, f.Value)
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", errors.New("there is more than one")
	}
	if err := json.Unmarshal(found[0], &key); err != nil { // null is no error, and no key
		return "", errors.New("it is no string")
	}
	return k.check(strings.TrimSpace(key))
}

// Field is a field of a JSON object.
type Field struct {
	Name  string
	Value json.RawMessage
}

// Fields lists the fields of a text that is a JSON object, in their order, each as often as it is there.
func Fields(text []byte) (fields []Field, err error) {
	if !json.Valid(text) {
		return nil, errors.New("no JSON")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("no JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		f := Field{Name: name.(string)} //nolint:errcheck // what stands there in an object
		if err := d.Decode(&f.Value); err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// check takes the space away from a key's ends; what is left may be nothing, which is no key. U+FFFD stands for
// anything that was no character: half a surrogate pair in JSON, say. Two such keys could not be told apart.
func (k KeyRule) check(text string) (string, error) {
	key := strings.TrimSpace(text)
	switch {
	case key == "":
		return "", nil
	case strings.ContainsRune(key, utf8.RuneError) || strings.ContainsFunc(key, unicode.IsControl):
		return "", errors.New("it is not UTF-8, or has control characters in it")
	case utf8.RuneCountInString(key) > MaxKeyChars:
		return "", fmt.Errorf("it is longer than %d characters", MaxKeyChars)
	case !k.UUIDOnly:
		return key, nil
	}
	id, err := uuid.Parse(key)
	if err != nil || len(key) != 36 {
		return "", errors.New("it is no UUID of the form 0190b5e2-7c1a-7def-8123-456789abcdef")
	}
	return id.String(), nil
}
