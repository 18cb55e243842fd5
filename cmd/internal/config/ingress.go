package config

import (
	"crypto/tls"
	"log/slog"
	"maps"
	"slices"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/ingress"
)

// What becomes of a key that was sent before with something else.
const (
	conflictAnswer = "answer"
	conflictRefuse = "refuse"
)

func (l *loader) checkIngress(c *Config) {
	in := c.Ingress
	l.choice("ingress.conflict", in.Conflict)
	_, faults := in.tls()
	for _, f := range faults {
		l.fault(f.Key, "%s", f.Text)
	}
	if len(in.Certificates) > 0 && in.ClientCAFile == "" {
		l.fault("ingress.certificates",
			"has no effect while no certificates are asked for; give ingress.client_ca_file, or take this out")
	}
	l.checkClients(in)
	l.checkIngressTopics(c)
	if in.Listen == "" {
		return
	}
	l.checkListen("ingress.listen", in.Listen)
	if len(in.Tokens) == 0 && len(in.Certificates) == 0 && !l.has("ingress.token_files") {
		l.fault("ingress.listen", "would be closed to everybody; give ingress.tokens or ingress.token_files, or "+
			"ingress.client_ca_file and ingress.certificates")
	}
	if len(in.Topics) == 0 {
		l.fault("ingress.listen", "has no topic to take messages for; list some of the topics in ingress.topics")
	}
}

// checkClients checks who may post, by their names.
func (l *loader) checkClients(in Ingress) {
	holders := map[Secret]string{}
	for _, name := range slices.Sorted(maps.Keys(in.Tokens)) {
		token, path := in.Tokens[name], "ingress.tokens["+name+"]"
		if l.has("ingress.token_files["+name+"]") || l.has("ingress.tokens."+name) {
			continue
		}
		l.checkStored(path, name)
		if token == "" {
			l.fault(path, "is empty; make it as by `openssl rand -hex 32`")
			continue
		}
		l.checkToken(path, token)
		if other, twice := holders[token]; twice {
			l.fault(path, "is the token of %s too; give each client its own", other)
		}
		holders[token] = name
	}
	for _, name := range slices.Sorted(maps.Keys(in.Tenants)) {
		path, tenant := "ingress.tenants["+name+"]", in.Tenants[name]
		if _, has := in.Tokens[name]; !has && !slices.Contains(in.Certificates, name) {
			l.fault(path, "no client has that name, neither in ingress.tokens nor in ingress.certificates")
		}
		if err := dedup.CheckName(tenant); err != nil || len(tenant) > dedup.MaxTenantBytes {
			l.fault(path, "can't be kept: a tenant's name has 1 to %d bytes", dedup.MaxTenantBytes)
		}
	}
}

func (l *loader) checkIngressTopics(c *Config) {
	for i, name := range c.Ingress.Topics {
		if _, is := c.TopicOf(name); !is && !l.has("topics") {
			l.fault("ingress.topics"+index(i), "is none of the topics")
		}
	}
	for i, name := range c.Ingress.Queued {
		if !slices.Contains(c.Ingress.Topics, name) {
			l.fault("ingress.queued"+index(i), "is none of ingress.topics")
		}
	}
}

// TLS is the server's config, as that of HTTP.
func (in Ingress) TLS(log *slog.Logger) (*tls.Config, error) { return serving("ingress", log, in.tls) }

func (in Ingress) tls() (*tls.Config, []Fault) {
	return serverTLS("ingress", in.CertFile, in.KeyFile, in.ClientCAFile)
}

// ForIngress makes the ingress's config, but for its processor and who its callers are.
func (c Config) ForIngress() (ingress.Config, error) {
	in := c.Ingress
	topics, err := c.topics()
	if err != nil {
		return ingress.Config{}, err
	}
	open, all := map[string]ingress.Topic{}, consumer.Config{Topics: topics, DeadTopic: c.DeadLetterTopic}
	for _, name := range in.Topics {
		t, _ := all.Topic(name) // checked
		open[name] = ingress.Topic{Identity: t.Identity, TenantHeader: t.TenantHeader,
			Fingerprint: t.Fingerprint, Queued: slices.Contains(in.Queued, name),
			RefuseOther: in.Conflict == conflictRefuse}
	}
	return ingress.Config{Topics: open, MaxBytes: int64(in.BodyLimit), MaxMessages: in.MaxMessages, MaxParked: c.MaxParked,
		Concurrency: in.Concurrency, ReadTime: in.BodyTimeout, WorkTime: in.WorkTimeout}, nil
}
