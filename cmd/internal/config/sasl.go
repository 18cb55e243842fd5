package config

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/firstseen/firstseen/consumer/mskiam"
	"github.com/firstseen/firstseen/consumer/oauthbearer"
)

const (
	byPlain     = "plain"
	bySCRAM256  = "scram-sha-256"
	bySCRAM512  = "scram-sha-512"
	byOAuth     = "oauthbearer"
	byAmazonMSK = "aws-msk-iam"
)

var mechanisms = []string{byPlain, bySCRAM256, bySCRAM512, byOAuth, byAmazonMSK}

// logins are the keys that a mechanism logs in by.
var logins = map[string][]string{
	byPlain:     {"username", "password", "password_file"},
	bySCRAM256:  {"username", "password", "password_file"},
	bySCRAM512:  {"username", "password", "password_file"},
	byOAuth:     {"oauth"},
	byAmazonMSK: {"region"},
}

func (l *loader) checkSASL(s SASL) {
	switch {
	case s.Mechanism == "" && !reflect.ValueOf(s).IsZero():
		l.require("kafka.sasl.mechanism", "",
			"write one of "+strings.Join(mechanisms, ", ")+", or take the other keys out")
		return
	case !slices.Contains(mechanisms, s.Mechanism):
		l.choice("kafka.sasl.mechanism", s.Mechanism)
		return
	}
	l.checkIdle(s)
	switch s.Mechanism {
	case byOAuth:
		l.checkOAuth(s.OAuth)
	case byAmazonMSK:
		l.require("kafka.sasl.region", s.Region, "write the region of the cluster, like eu-west-1")
	default:
		l.checkUser(s)
	}
}

// checkIdle finds the keys that another mechanism logs in by.
func (l *loader) checkIdle(s SASL) {
	for f, field := range reflect.ValueOf(s).Fields() {
		name := f.Tag.Get("key")
		if name != "mechanism" && !field.IsZero() && !slices.Contains(logins[s.Mechanism], name) {
			l.fault("kafka.sasl."+name, "has no effect for %s; take it out, or set kafka.sasl.mechanism", s.Mechanism)
		}
	}
}

func (l *loader) checkUser(s SASL) {
	l.require("kafka.sasl.username", s.Username, "the mechanism needs one")
	if !l.has("kafka.sasl.password_file") {
		l.require("kafka.sasl.password", s.Password.Reveal(),
			"give it as ${NAME} or by kafka.sasl.password_file, not in the file itself")
	}
	if _, err := s.byUser(); err != nil {
		l.fault("kafka.sasl", "username or password has a character that %s does not allow (RFC 4013)", s.Mechanism)
	}
}

// asksServer lists the keys that only count with a token endpoint.
var asksServer = []string{"client_id", "client_secret", "client_secret_file", "scopes", "parameters", "ca_file"}

func (l *loader) checkOAuth(o OAuth) {
	var given []string
	for f, field := range reflect.ValueOf(o).Fields() {
		name := f.Tag.Get("key")
		switch {
		case field.IsZero():
		case strings.HasPrefix(name, "token"):
			given = append(given, name)
		case o.TokenURL == "" && slices.Contains(asksServer, name):
			l.fault("kafka.sasl.oauth."+name, "has no effect without kafka.sasl.oauth.token_url")
		}
	}
	if len(given) != 1 {
		l.fault("kafka.sasl.oauth", "needs one of token, token_file and token_url, and has %d", len(given))
		return
	}
	if o.TokenFile != "" {
		if _, err := oauthbearer.File(o.TokenFile)(context.Background()); err != nil {
			l.fault("kafka.sasl.oauth.token_file", "%v", err)
		}
	}
	l.checkServer(o)
	l.faultLines("kafka.sasl.oauth.extensions", oauthbearer.Config{Source: oauthbearer.Static(""),
		Extensions: o.Extensions}.Check())
}

func (l *loader) checkServer(o OAuth) {
	if o.TokenURL == "" {
		return
	}
	l.require("kafka.sasl.oauth.client_id", o.ClientID, "the token endpoint knows the client by it")
	if !l.has("kafka.sasl.oauth.client_secret_file") {
		l.require("kafka.sasl.oauth.client_secret", o.ClientSecret.Reveal(),
			"give it as ${NAME} or by kafka.sasl.oauth.client_secret_file, not in the file itself")
	}
	asked, faults := o.asked()
	l.faults = append(l.faults, faults...)
	asked.ClientID, asked.ClientSecret = "checked", "above"
	l.faultLines("kafka.sasl.oauth.token_url", asked.Check())
}

// faultLines notes what a check of another room has found, a fault a line.
func (l *loader) faultLines(path string, err error) {
	if err == nil {
		return
	}
	for text := range strings.Lines(err.Error()) {
		l.fault(path, "%s", strings.TrimSpace(text))
	}
}

// config is nil without a mechanism. Nobody is asked for anything yet.
func (s SASL) config() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case byOAuth:
		source, err := s.OAuth.source()
		if err != nil {
			return nil, err
		}
		return oauthbearer.New(oauthbearer.Config{Source: source, Extensions: s.OAuth.Extensions})
	case byAmazonMSK:
		source, err := mskiam.Source(context.Background(), s.Region)
		if err != nil {
			return nil, err
		}
		return oauthbearer.New(oauthbearer.Config{Source: source})
	}
	return s.byUser()
}

// byUser is nil where the mechanism is none of a username and password.
func (s SASL) byUser() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case byPlain:
		return plain.Mechanism{Username: s.Username, Password: s.Password.Reveal()}, nil
	case bySCRAM256:
		return scram.Mechanism(scram.SHA256, s.Username, s.Password.Reveal())
	case bySCRAM512:
		return scram.Mechanism(scram.SHA512, s.Username, s.Password.Reveal())
	}
	return nil, nil
}

func (o OAuth) source() (oauthbearer.Source, error) {
	switch {
	case o.Token != "":
		return oauthbearer.Static(o.Token.Reveal()), nil
	case o.TokenFile != "":
		return oauthbearer.File(o.TokenFile), nil
	}
	asked, faults := o.asked()
	if len(faults) > 0 {
		return nil, &Error{Source: "read again", Faults: faults}
	}
	return asked.Source()
}

// asked is the server that is asked for tokens.
func (o OAuth) asked() (oauthbearer.ClientCredentials, []Fault) {
	by, faults := TLS{Enabled: true, CAFile: o.CAFile}.config("kafka.sasl.oauth")
	return oauthbearer.ClientCredentials{TokenURL: o.TokenURL, ClientID: o.ClientID,
		ClientSecret: o.ClientSecret.Reveal(), Scopes: o.Scopes, Parameters: o.Parameters, TLS: by}, faults
}

// LoginInClear is what of the login crosses the network as it is: the password or the token; empty: nothing does.
func (k Kafka) LoginInClear() string {
	switch {
	case k.TLS.Enabled:
		return ""
	case k.SASL.Mechanism == byPlain:
		return "the password"
	case k.SASL.Mechanism == byOAuth, k.SASL.Mechanism == byAmazonMSK:
		return "the token"
	}
	return ""
}
