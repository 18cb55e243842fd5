package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"

	"github.com/firstseen/firstseen/dedup/request"
)

// Caller identifies who sends a request, as authentication found out. One caller's keys and those of another are
// different keys, and neither learns that the other's are there.
type Caller struct {
	// Tenant is the customer that the request is of.
	Tenant string
	// Principal is who within the tenant: a user, an API client.
	Principal string
	// Scope is whatever else tells keys apart, such as a conversation. It is logged.
	Scope string
}

// OneCaller is for a service with a single client, or one that trusts all of them as one. Behind it whoever guesses a
// key is told the answer that it got.
func OneCaller(*http.Request) (Caller, error) { return Caller{}, nil }

// ID identifies a key: SHA-256 of its caller, its route and itself, each with its length before it, so that no two of
// them are the same text run together differently.
type ID [sha256.Size]byte

// String is the ID in hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Domains keep the hashes of this package apart from each other, and from those of a later rule.
const (
	idDomain      = "firstseen/idempotency/id/1"
	keyDomain     = "firstseen/idempotency/key/1"
	requestDomain = "firstseen/idempotency/request/1"
)

// HashKey is SHA-256 of a key alone, by which a store finds it, whoever sent it.
func HashKey(key string) [sha256.Size]byte { return sumOf(keyDomain, key) }

func newID(c Caller, method, route, key string) ID {
	return ID(sumOf(idDomain, c.Tenant, c.Principal, c.Scope, method, route, key))
}

// sumOf hashes texts with their lengths.
func sumOf(domain string, parts ...string) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte(domain))
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// PatternOf names routes by the patterns of a mux, for a middleware that stands before it.
func PatternOf(mux *http.ServeMux) func(*http.Request) string {
	return func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return pattern
	}
}

// routeOf names a request's route, and says whether that is one of a few: paths are not.
func (c *Config) routeOf(r *http.Request) (route string, few bool) {
	switch {
	case c.Route != nil:
		return stable(c.Route(r)), true
	case r.Pattern != "":
		return stable(r.Pattern), true
	}
	return request.Path(r), false
}

// wildcard is a name in a pattern: a deployment may change it between two tries.
var wildcard = regexp.MustCompile(`\{[^{}$.]+(\.\.\.)?\}`)

// stable is the route without the names of its wildcards.
func stable(route string) string { return wildcard.ReplaceAllString(route, `{$1}`) }

// text makes a text one that Postgres can hold, cut to maxText bytes: the ID has all of it.
func text(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

// maxText bounds texts that are stored for people.
const maxText = 1000
