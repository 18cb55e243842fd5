package identity

import (
	"crypto/sha256"
	"fmt"
	"unicode/utf8"
)

// FingerprintMode says by what messages of one ID are told apart when their values differ. The empty mode,
// FingerprintNone, keeps no fingerprint, so a second copy is a duplicate whatever it holds.
type FingerprintMode string

const (
	// FingerprintNone keeps no fingerprint. It is the default.
	FingerprintNone FingerprintMode = ""
	// FingerprintBytes is SHA-256 of the value's bytes, the same as Postgres' sha256(payload).
	FingerprintBytes FingerprintMode = "bytes"
	// FingerprintJSON is SHA-256 of the value's canonical JSON: white space, key order, escapes and the
	// spelling of numbers make no difference, the numbers themselves do, to the last digit.
	FingerprintJSON FingerprintMode = "json"
)

// Prefixes of what is hashed in mode json, so that a value that is not JSON never meets one that is.
const (
	fingerprintJSON    = "firstseen/fingerprint/json/1\x00"
	fingerprintNotJSON = "firstseen/fingerprint/not-json/1\x00"
)

// Validate returns an error that names the mode and the allowed ones if it is none of them.
func (f FingerprintMode) Validate() error {
	switch f {
	case FingerprintNone, FingerprintBytes, FingerprintJSON:
		return nil
	}
	return fmt.Errorf(`fingerprint %q: unknown mode; want "bytes", "json", or "" for none`, string(f))
}

// Of is the value's fingerprint: 32 bytes, or nil without a mode (and for one that is not valid). A
// null value has 32 zero bytes in every mode, so it differs from an empty one and from JSON's null.
// It is safe for concurrent use.
//
// In mode json the canonical text follows RFC 8785, but numbers never pass through a float64: 1, 1.0 and
// 1e0 are equal, 9007199254740993 and 9007199254740992 are not. Minus zero is zero. A repeated key keeps
// all its values in their order, and a surrogate without its partner is what it is. A number whose exponent
// has more than 18 digits counts by its text. A value that is not JSON in UTF-8, or is nested deeper than
// 512 levels, counts by its bytes.
//
// Fingerprints of different modes are not comparable.
func (f FingerprintMode) Of(value []byte) []byte {
	switch {
	case f == FingerprintNone || f.Validate() != nil:
		return nil
	case value == nil:
		return make([]byte, sha256.Size)
	case f == FingerprintBytes:
		return prefixedSum("", value)
	case utf8.Valid(value) && isJSON(value):
		return prefixedSum(fingerprintJSON, canonicalJSON(value))
	}
	return prefixedSum(fingerprintNotJSON, value)
}

// OfDecoded is Of for a value that was decoded to JSON, which mode json looks at instead; nil: it was not.
func (f FingerprintMode) OfDecoded(value, json []byte) []byte {
	if f == FingerprintJSON && json != nil {
		return f.Of(json)
	}
	return f.Of(value)
}

func prefixedSum(prefix string, value []byte) []byte {
	h := sha256.New()
	h.Write([]byte(prefix))
	h.Write(value)
	return h.Sum(nil)
}
