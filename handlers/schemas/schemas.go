// Package schemas reads values that were written by a schema of a registry, in Avro, Protobuf or JSON, as JSON: a
// [handlers.Format] for topics whose producers use Confluent's or Apicurio's serializers. It is a package of its own so
// that other programs don't link those formats.
//
// A message enters [Registry.Format]'s JSON, and its value as JSON leaves it. What stands around the value says which
// schema it is; that is asked for once, and kept: a registry never changes a schema that it has given an ID.
//
// What a value looks like in JSON never changes, as IDs are found in it:
//
//   - Fields have the names that they have in the schema. Bytes are in base64. A float that JSON has no number for is
//     "NaN", "Infinity" or "-Infinity".
//   - Avro: a union's value stands alone, without the name of its branch. A decimal is a number with all of its digits,
//     12.30. A date is "2006-01-02", a time of the day "15:04:05.678", a timestamp "2006-01-02T15:04:05.678Z" in UTC
//     and a local one the same without the Z; a duration is "P1M2DT3.004S", and a UUID a text.
//   - Protobuf: as its own JSON ("ProtoJSON Format"), in which numbers of 64 bits are texts, with fields that have their
//     default value, and without white space.
//   - JSON: as it stands there.
//
// In reading order: schemas.go, framing.go (what stands around a value), registry.go (schemas by their IDs), avro.go,
// protobuf.go.
package schemas

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// Config says how to reach a registry. Only URL is required.
type Config struct {
	// URL is the registry's, without credentials: the base of Confluent's API, which Apicurio has below
	// /apis/ccompat/v7, Karapace and Redpanda at their root; or that of Apicurio's own, /apis/registry/v2 or
	// /apis/registry/v3. Required.
	URL string
	// Username and Password log in. Default: nobody does.
	Username, Password string
	// Token is a bearer token, instead. Default none.
	Token string
	// TLS is for https. Default Go's.
	TLS *tls.Config
	// Timeout bounds each request. Default 5 s.
	Timeout time.Duration
	// MaxJSON bounds what a value may come to as JSON, in bytes. Default 16 MiB.
	MaxJSON int
}

// WithDefaults is the config with a default wherever it says nothing.
func (c Config) WithDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Second
	}
	if c.MaxJSON <= 0 {
		c.MaxJSON = 16 << 20
	}
	return c
}

// Check reports every fault of the config.
func (c Config) Check() error {
	var faults []error
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		faults = append(faults, errors.New("a URL is required"))
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		faults = append(faults, errors.New("the URL is none of http or https"))
	case u.User != nil:
		faults = append(faults, errors.New("the URL has credentials in it: give them beside it"))
	case u.RawQuery != "", u.Fragment != "":
		faults = append(faults, errors.New("the URL has a query or a fragment, which a base has not"))
	}
	if c.Token != "" && c.Username != "" {
		faults = append(faults, errors.New("a token and a username are two ways to log in: give one"))
	}
	if c.Username == "" && c.Password != "" {
		faults = append(faults, errors.New("a password needs a username"))
	}
	return errors.Join(faults...)
}

// format is a Framing of a registry's values.
type format struct {
	registry *Registry
	framing  Framing
}

var _ handlers.Format = format{}

// Format reads values of a framing; the empty one is Auto.
func (r *Registry) Format(how Framing) handlers.Format {
	if how == "" {
		how = Auto
	}
	return format{r, how}
}

// JSON reads one value. A registry that does not answer, or refuses to, makes it [handlers.Unavailable].
func (f format) JSON(ctx context.Context, m *dedup.Message) ([]byte, error) {
	frame, found, err := f.framing.frameOf(m, f.registry.native)
	switch {
	case err != nil:
		return nil, handlers.Undecodable(err)
	case !found && f.framing == Auto:
		return nil, nil
	case !found:
		return nil, handlers.Undecodable(fmt.Errorf("it has no %s framing, which its topic has", f.framing))
	}
	schema, err := f.registry.schema(ctx, frame.id)
	if err != nil {
		return nil, err
	}
	text, err := read(schema, frame, f.registry.cfg.MaxJSON)
	if err != nil {
		return nil, handlers.Undecodable(fmt.Errorf("%w; by %s", err, frame.id))
	}
	return text, nil
}

// read survives a library that a value has panic.
func read(s schema, f frame, most int) (text []byte, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a library failed on it")
		}
	}()
	value, at := f.rest, f.at
	if _, ok := s.(*protobufSchema); ok {
		if at, value, err = f.place(); err != nil {
			return nil, err
		}
	}
	return s.json(value, at, most)
}

// jsonSchema is the schema of values that are JSON already. They are not held against it: that is the producer's part.
type jsonSchema struct{}

func (jsonSchema) json(value []byte, _ place, most int) ([]byte, error) {
	if len(value) > most {
		return nil, errors.New("read JSON: it is too large")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(value, &whole); err != nil {
		var broken *json.SyntaxError
		if errors.As(err, &broken) && broken.Offset < int64(len(value)) {
			return nil, fmt.Errorf("read JSON: it is broken at byte %d of %d", broken.Offset, len(value))
		}
		return nil, fmt.Errorf("read JSON: it ends too early, at byte %d", len(value))
	}
	return bytes.TrimSpace(value), nil
}

// isNative says that a URL is the base of Apicurio's own API.
func isNative(base string) bool {
	return strings.Contains(base, "/apis/registry/v")
}
