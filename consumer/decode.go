package consumer

import (
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/dedup"
)

// decode turns a record into a message and finds its identity. Key, value and headers are the record's own bytes.
func decode(r *kgo.Record, topic *Topic, topicID uuid.UUID) dedup.Message {
	m := dedup.Message{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		Key: r.Key, Value: r.Value, Headers: headers(r.Headers),
		Fingerprint: topic.Fingerprint.Of(r.Value),
	}
	topic.Identity.Identify(&m, topicID)
	if topic.TenantHeader != "" && m.Reason == "" {
		name, ok := tenant(m.Headers, topic.TenantHeader)
		if m.Tenant = name; !ok {
			m.Refuse(dedup.ReasonBadTenant, topicID)
		}
	}
	return m
}

func headers(hs []kgo.RecordHeader) []dedup.Header {
	if len(hs) == 0 {
		return nil
	}
	out := make([]dedup.Header, len(hs))
	for i, h := range hs {
		out[i] = dedup.Header{Key: h.Key, Value: h.Value}
	}
	return out
}

// tenant finds the tenant's name. It must be there, and only once: guessing would have one tenant's message hide
// another's.
func tenant(hs []dedup.Header, name string) (found string, ok bool) {
	for _, h := range hs {
		if h.Key != name {
			continue
		}
		v := string(h.Value)
		if v == "" || len(v) > dedup.MaxTenantBytes || !utf8.ValidString(v) || strings.ContainsRune(v, 0) || ok && v != found {
			return "", false
		}
		found, ok = v, true
	}
	return found, ok
}
