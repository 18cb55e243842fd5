package config

import (
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/schemas"
)

// formatRaw is the format of values that are what they are.
const formatRaw = "raw"

func (l *loader) checkRegistry(c *Config) {
	r := c.Registry
	for i, t := range c.Topics {
		if r.URL == "" && (t.Format == string(schemas.Confluent) || t.Format == string(schemas.Apicurio)) {
			l.require("registry.url", "", fmt.Sprintf("topics[%d].format is %s", i, t.Format))
		}
	}
	if r.URL == "" {
		if r != (Registry{Timeout: r.Timeout}) {
			l.require("registry.url", "", "or take the other keys of registry out")
		}
		return
	}
	_, faults := r.tls()
	l.faults = append(l.faults, faults...)
	l.faultLines("registry.url", r.config(nil).Check())
}

// tls is nil for a URL without.
func (r Registry) tls() (*tls.Config, []Fault) {
	t := r.TLS
	if !strings.HasPrefix(strings.ToLower(r.URL), "https:") {
		if t != (RegistryTLS{}) {
			return nil, []Fault{{Key: "registry.tls", Text: "has no effect for a URL that does not begin with https"}}
		}
		return nil, nil
	}
	return TLS{Enabled: true, CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify}.config("registry.tls")
}

func (r Registry) config(t *tls.Config) schemas.Config {
	return schemas.Config{URL: r.URL, Username: r.Username, Password: r.Password.Reveal(), Token: r.Token.Reveal(),
		TLS: t, Timeout: r.Timeout}
}

// open is nil where there is none.
func (r Registry) open() (*schemas.Registry, error) {
	if r.URL == "" {
		return nil, nil
	}
	t, faults := r.tls()
	if len(faults) > 0 {
		return nil, &Error{Source: "read again", Faults: faults}
	}
	return schemas.New(r.config(t))
}

// format is nil where values are what they are.
func (t Topic) format(r *schemas.Registry) handlers.Format {
	if r == nil || t.Format == formatRaw {
		return nil
	}
	return r.Format(schemas.Framing(t.Format))
}

// Formats has what decodes the values of topics; it is nil without a registry.
func (c Config) Formats() (handlers.Formats, *schemas.Registry, error) {
	registry, err := c.Registry.open()
	if err != nil {
		return nil, nil, err
	}
	topics := consumer.Config{DeadTopic: c.DeadLetterTopic}
	for _, t := range c.Topics {
		topics.Topics = append(topics.Topics, consumer.Topic{Name: t.Name, Pattern: t.Pattern, Format: t.format(registry)})
	}
	return topics.Formats(), registry, nil
}
