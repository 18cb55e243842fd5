package fetch

import (
	"strings"
	"unicode/utf8"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

// Settings say how a record becomes a message.
type Settings struct {
	Rule         *identity.Rule
	TenantHeader string
	Fingerprint  identity.FingerprintMode
}

// Message is what a record becomes: its key, value and headers are the record's own bytes, and its identity is found.
func (p *Partition) Message(r *wire.Record) dedup.Message {
	m := dedup.Message{
		Topic: p.Topic, Partition: p.Partition, Offset: r.Offset,
		Key: r.Key, Value: r.Value, Headers: r.Headers, Fingerprint: p.settings.Fingerprint.Of(r.Value),
	}
	m.Stamp(r.Timestamp)
	m.Identify(p.settings.Rule, p.TopicID)
	if p.settings.TenantHeader != "" && m.Reason == "" {
		name, ok := tenant(m.Headers, p.settings.TenantHeader)
		if m.Tenant = name; !ok {
			m.Refuse(identity.ReasonBadTenant, p.TopicID)
			m.Sought = "looked for a tenant in header:" + p.settings.TenantHeader
		}
	}
	return m
}

// tenant finds the tenant's name. It must be there, and only once: guessing would have one tenant's message hide
// another's.
func tenant(hs []dedup.Header, name string) (found string, ok bool) {
	for _, h := range hs {
		if h.Key != name {
			continue
		}
		v := string(h.Value)
		if v == "" || len(v) > dedup.MaxTenantBytes || !utf8.ValidString(v) || strings.ContainsRune(v, 0) || ok &&
			v != found {
			return "", false
		}
		found, ok = v, true
	}
	return found, ok
}
