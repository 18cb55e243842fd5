package oauthbearer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// claims are those of a JWT that brokers hold against their settings. Whether they are true is not looked at.
type claims struct {
	Issuer   string   `json:"iss"`
	Audience audience `json:"aud"`
	Expires  float64  `json:"exp"`
}

// audience is one text or several (RFC 7519, 4.1.3).
type audience []string

// UnmarshalJSON takes either.
func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// claimsOf reads a token that is a JWT.
func claimsOf(token string) (c claims, isJWT bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	return c, err == nil && json.Unmarshal(text, &c) == nil
}

// latest is beyond what any clock shows: the first second of the year 10000.
const latest = 253402300800

// expiry is when a JWT ends; zero where it is none, or has no end.
func expiry(token string) time.Time {
	c, _ := claimsOf(token)
	if c.Expires < 1 || c.Expires >= latest {
		return time.Time{}
	}
	return time.Unix(int64(c.Expires), 0)
}

// about says of a token what may be wrong with it, and nothing that is secret.
func about(t Token, now time.Time) string {
	c, isJWT := claimsOf(t.Value)
	ends := t.Expires
	if ends.IsZero() {
		ends = expiry(t.Value)
	}
	var said []string
	if isJWT {
		said = append(said, fmt.Sprintf("it is of issuer %q for audience %q", c.Issuer, []string(c.Audience)))
	} else {
		said = append(said, "it is no JWT")
	}
	switch {
	case ends.IsZero():
	case now.Before(ends):
		said = append(said, fmt.Sprintf("ends in %s", ends.Sub(now).Truncate(time.Second)))
	default:
		said = append(said, fmt.Sprintf("ended %s ago", now.Sub(ends).Truncate(time.Second)))
	}
	return strings.Join(said, ", and ")
}

// statusOf is what a broker's refusal (RFC 7628, 3.2.2) gives as its reason.
func statusOf(answer []byte) string {
	var refusal struct {
		Status string `json:"status"`
		Scope  string `json:"scope"`
	}
	if json.Unmarshal(answer, &refusal) != nil || refusal.Status == "" {
		return "it is refused"
	}
	if refusal.Scope != "" {
		return fmt.Sprintf("%s, scope %s is needed", refusal.Status, refusal.Scope)
	}
	return refusal.Status
}
