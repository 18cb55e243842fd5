// Package oauthbearer logs in to Kafka by SASL OAUTHBEARER (RFC 7628, KIP-255): whoever connects shows a token, which
// the broker checks by itself or with whom it trusts.
//
// A [Source] gives the token for each login: [Static], [File] or [ClientCredentials.Source], package mskiam
// for Amazon MSK, or one of the program's own. [New] makes of it what consumer.Connection takes. No token is in any
// error.
//
// A broker that limits a session, by connections.max.reauth.ms, is shown the token of that time on the connections that
// there are. Where a session is limited it ends with the token at the latest.
//
// In reading order: oauthbearer.go (the exchange), source.go (tokens that are there), credentials.go (tokens that are
// asked for), kept.go (until when one is used), claims.go (what a token says of itself).
package oauthbearer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// Name is the mechanism's, as brokers know it.
const Name = "OAUTHBEARER"

// Token is what a client shows to a broker. No print and no log shows it.
type Token struct {
	// Value is the token itself, as a rule a JWT.
	Value string
	// Expires is when it ends. Zero: that is not known.
	Expires time.Time
}

const hidden = "***"

// String hides the token.
func (t Token) String() string { return hidden }

// Format hides the token from every verb of fmt.
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue hides the token from slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(hidden) }

// Source gives a token that is good now. It is asked for each login, by several goroutines at once, and obeys ctx.
// Its error says who was asked and what is wrong, and has no secret in it.
type Source func(ctx context.Context) (Token, error)

// Config says how to log in. Only Source is required.
type Config struct {
	// Source gives the token for each login.
	Source Source
	// Extensions are sent beside the token (KIP-342), as Confluent Cloud's logicalCluster and identityPoolId. Names are
	// of letters only; auth is none.
	Extensions map[string]string
}

var (
	extensionName  = regexp.MustCompile(`^[A-Za-z]+$`)
	extensionValue = regexp.MustCompile(`^[\x21-\x7E \t\r\n]+$`)
)

// Check says all that is wrong with the config.
func (c Config) Check() error {
	var faults []error
	if c.Source == nil {
		faults = append(faults, errors.New("a source of tokens is required"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Extensions)) {
		switch {
		case !extensionName.MatchString(name) || strings.EqualFold(name, "auth"):
			faults = append(faults, fmt.Errorf("extension %q: a name is of letters only, and not auth", name))
		case !extensionValue.MatchString(c.Extensions[name]):
			faults = append(faults, fmt.Errorf("extension %s: a value is of printable ASCII, and not empty", name))
		}
	}
	return errors.Join(faults...)
}

// New makes the mechanism, for consumer.Connection. It is safe for concurrent use.
func New(cfg Config) (sasl.Mechanism, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("oauthbearer: %w", err)
	}
	var extensions strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cfg.Extensions)) {
		extensions.WriteString(separator + name + "=" + cfg.Extensions[name])
	}
	return &mechanism{cfg.Source, extensions.String()}, nil
}

// separator stands between the parts of the message.
const separator = "\x01"

type mechanism struct {
	source     Source
	extensions string
}

func (m *mechanism) Name() string { return Name }

// Start asks for a token. Where there is none nothing is sent.
func (m *mechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	token, err := m.source(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("there is no token to log in with: %w", err)
	}
	if err := sendable(token.Value); err != nil {
		return nil, nil, fmt.Errorf("there is no token to log in with: %w", err)
	}
	message := "n,," + separator + "auth=Bearer " + token.Value + m.extensions + separator + separator
	return &exchange{token: token}, []byte(message), nil
}

// sendable holds a token against the characters of a bearer token (RFC 6750, 2.1), none of which ends the message.
func sendable(token string) error {
	if token == "" {
		return errors.New("what was given is empty")
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return errors.New("what was given has a space or a character that no token has")
		}
	}
	return nil
}

// exchange is one attempt to log in.
type exchange struct {
	token  Token
	status string // of the refusal, as the broker has it
}

// Next takes an empty answer for the end, and any other for a refusal: it is answered, as RFC 7628 3.2.3 has it, upon
// which the broker says that the login has failed, and counts it.
func (e *exchange) Next(_ context.Context, answer []byte) (done bool, response []byte, err error) {
	switch {
	case e.status != "":
		return false, nil, errors.New(e.Refusal())
	case len(answer) == 0:
		return true, nil, nil
	}
	e.status = statusOf(answer)
	return false, []byte(separator), nil
}

// Refusal says what the broker has against the token, and of the token what a broker holds against its settings.
func (e *exchange) Refusal() string {
	said := "it is refused"
	if e.status != "" {
		said = e.status
	}
	return said + "; " + about(e.token, time.Now())
}
