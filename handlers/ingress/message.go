package ingress

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/dedup/request"
)

// noPartition stands for the partition of a message that has none. Its lanes are no partition's.
const noPartition = -1

// named gives an item its ID, by its key where its template is not to be resolved before it is known to be new.
func (x *exchange) named(it *item) (*posted, *request.Problem) {
	if it.Template != nil && x.topic.Resolve == nil {
		return nil, refusal(http.StatusUnprocessableEntity, codeTemplate, "This topic takes no templates.")
	}
	if it.Template != nil && it.idempotencyKey != "" {
		ids, err := identity.ParseIDs(it.idempotencyKey)
		if err != nil {
			return nil, refusal(http.StatusBadRequest, codeKey, "The key stands for no ID: choose another one.")
		}
		return &posted{item: it, id: ids[0]}, nil
	}
	if p := x.resolve(it); p != nil {
		return nil, p
	}
	m, p := x.message(it)
	return &posted{item: it, id: m.ID, message: &m}, p
}

// resolve makes a template's content, which is made once.
func (x *exchange) resolve(it *item) *request.Problem {
	if it.Template == nil || it.Content != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.cfg.WorkTime)
	defer cancel()
	content, err := x.topic.Resolve(ctx, *it.Template)
	switch {
	case err == nil && content == nil:
		content = []byte{}
	case err != nil && (failure.Passes(err) || ctx.Err() != nil):
		return x.failed("resolve a template", err, "The template can't be resolved now. Nothing was done.")
	case err != nil:
		return refusal(http.StatusUnprocessableEntity, codeTemplate, "The template can't be resolved: "+err.Error())
	}
	it.Content = content
	return nil
}

// message makes an item a message, but for its offset.
func (x *exchange) message(it *item) (dedup.Message, *request.Problem) {
	m := dedup.Message{Topic: x.topic.name, Partition: noPartition, Tenant: x.caller.Tenant, Value: it.Content,
		Fingerprint: x.topic.Fingerprint.Of(it.Content), Timestamp: time.Now().Truncate(time.Millisecond)}
	if it.Key != nil {
		m.Key = []byte(*it.Key)
	}
	for _, h := range it.Headers {
		m.Headers = append(m.Headers, dedup.Header{Key: h.Name, Value: []byte(h.Value)})
	}
	if p := x.setTenant(&m); p != nil {
		return m, p
	}
	record := identity.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Headers: m.Headers}
	found, err := x.topic.Identity.FindNamed(&record, it.idempotencyKey)
	if err != nil {
		return m, refusal(http.StatusBadRequest, codeKey, err.Error())
	}
	m.ID, m.RawID, m.Key, m.Headers = found.ID, found.RawID, record.Key, record.Headers
	return m, nil
}

// setTenant writes the caller's tenant where the consumer looks for it.
func (x *exchange) setTenant(m *dedup.Message) *request.Problem {
	name := x.topic.TenantHeader
	if name == "" {
		return nil
	}
	if slices.ContainsFunc(m.Headers, func(h dedup.Header) bool { return h.Key == name }) {
		return refusal(http.StatusBadRequest, codeInvalid,
			"The header that holds the tenant is set from who calls: leave it out.")
	}
	m.Headers = append(m.Headers, dedup.Header{Key: name, Value: []byte(x.caller.Tenant)})
	return nil
}
