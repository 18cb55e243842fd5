// Package idempotencytest is for tests of what uses package idempotency: a store in memory, and the tests that every
// idempotency.Store must pass ([TestStore]).
package idempotencytest

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup/idempotency"
)

// Memory is a Store that ends with its process. The zero value is empty. It is safe for concurrent use.
type Memory struct {
	// Now is the store's clock. Default time.Now.
	Now func() time.Time

	mu      sync.Mutex
	records map[idempotency.ID]*record
	fence   int64 // the last one
}

var _ idempotency.Store = (*Memory)(nil)

type record struct {
	fingerprint idempotency.Fingerprint
	fence       int64
	leaseUntil  time.Time // zero: no claim
	answer      *idempotency.Answer
	expiresAt   time.Time
}

func (m *Memory) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

func (m *Memory) finding(r *record, e idempotency.Entry) idempotency.Finding {
	switch now := m.now(); {
	case r == nil:
		return idempotency.Finding{}
	case r.answer != nil && now.Before(r.expiresAt):
		if r.fingerprint != e.Fingerprint {
			return idempotency.Finding{State: idempotency.Conflicting}
		}
		return idempotency.Finding{State: idempotency.Matching, Answer: clone(*r.answer)}
	case now.Before(r.leaseUntil) && r.fingerprint != e.Fingerprint:
		return idempotency.Finding{State: idempotency.Conflicting}
	case now.Before(r.leaseUntil):
		return idempotency.Finding{State: idempotency.InProgress}
	}
	return idempotency.Finding{}
}

func clone(a idempotency.Answer) *idempotency.Answer {
	return &idempotency.Answer{Status: a.Status, Header: a.Header.Clone(), Body: bytes.Clone(a.Body)}
}

// Lookup is the Store's.
func (m *Memory) Lookup(_ context.Context, e idempotency.Entry) (idempotency.Finding, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.finding(m.records[e.ID], e), nil
}

// Claim is the Store's.
func (m *Memory) Claim(_ context.Context, e idempotency.Entry,
	lease, ttl time.Duration) (int64, idempotency.Finding, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[e.ID]
	if found := m.finding(r, e); found.State != idempotency.NotFound {
		return 0, found, nil
	}
	if r == nil {
		r = &record{}
		if m.records == nil {
			m.records = map[idempotency.ID]*record{}
		}
		m.records[e.ID] = r
	}
	m.fence++
	*r = record{fingerprint: e.Fingerprint, fence: m.fence, leaseUntil: m.now().Add(lease),
		expiresAt: m.now().Add(ttl)}
	return r.fence, idempotency.Finding{}, nil
}

// claimed is the record of a claim, nil where it is lost.
func (m *Memory) claimed(id idempotency.ID, fence int64) *record {
	if r := m.records[id]; r != nil && r.fence == fence && (r.answer != nil || !r.leaseUntil.IsZero()) {
		return r
	}
	return nil
}

// Extend is the Store's.
func (m *Memory) Extend(_ context.Context, id idempotency.ID, fence int64, lease time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.claimed(id, fence)
	if r == nil || r.answer != nil {
		return idempotency.ErrClaimLost
	}
	r.leaseUntil = m.now().Add(lease)
	return nil
}

// Complete is the Store's.
func (m *Memory) Complete(_ context.Context, id idempotency.ID, fence int64, a idempotency.Answer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.claimed(id, fence)
	if r == nil {
		return idempotency.ErrClaimLost
	}
	r.answer, r.leaseUntil = clone(a), time.Time{}
	return nil
}

// Release is the Store's.
func (m *Memory) Release(_ context.Context, id idempotency.ID, fence int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.claimed(id, fence); r != nil && r.answer == nil {
		r.leaseUntil = time.Time{}
	}
	return nil
}

// Sweep is the Store's.
func (m *Memory) Sweep(_ context.Context, limit int) (swept int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, r := range m.records {
		if now := m.now(); swept < limit && !now.Before(r.expiresAt) && !now.Before(r.leaseUntil) {
			delete(m.records, id)
			swept++
		}
	}
	return swept, nil
}
