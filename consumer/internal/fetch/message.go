package fetch

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
)

// Settings say how a record becomes a message.
type Settings struct {
	Rule         *identity.Rule
	TenantHeader string
	Fingerprint  identity.FingerprintMode
	Format       handlers.Format // nil: values are what they are
}

// Message makes a record a message: its key, value and headers are the record's own bytes, its value is decoded by the
// topic's format, and its identity is found. The error says that the value can't be decoded now.
func (p *Partition) Message(ctx context.Context, r *wire.Record) (dedup.Message, error) {
	m := dedup.Message{
		Topic: p.Topic, Partition: p.Partition, Offset: r.Offset,
		Key: r.Key, Value: r.Value, Headers: r.Headers,
	}
	if p.settings.Format != nil {
		var err error
		if m.Decoded, err = p.decode(ctx, m); err != nil {
			return m, holding.As(holds.Schemas, err)
		}
	}
	m.Fingerprint = p.settings.Fingerprint.OfDecoded(m.Value, m.JSON())
	m.Stamp(r.Timestamp)
	m.Identify(p.settings.Rule, p.TopicID)
	if p.settings.TenantHeader != "" && m.Reason == "" {
		name, ok := tenant(m.Headers, p.settings.TenantHeader)
		if m.Tenant = name; !ok {
			m.Refuse(identity.ReasonBadTenant, p.TopicID)
			m.Sought = "looked for a tenant in header:" + p.settings.TenantHeader
		}
	}
	return m, nil
}

// decode takes a copy of the message: one that a format is given is an allocation.
func (p *Partition) decode(ctx context.Context, m dedup.Message) (*dedup.Decoded, error) {
	err := handlers.DecodeBy(ctx, p.settings.Format, &m)
	return m.Decoded, err
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
