package idempotency

import "sync"

// flights holds the keys that this process is working on, so that twins in it ask nobody else, and wait in memory.
type flights struct {
	mu      sync.Mutex
	flights map[ID]*flight
}

// flight is one request with a key, from before its claim to its answer.
type flight struct {
	fingerprint Fingerprint
	landed      chan struct{}
	answer      *Answer // read after landed is closed; nil: it has none to give
}

// join gives the key's flight. Where none was under way it is the caller's own, who must land it.
func (f *flights) join(id ID, fingerprint Fingerprint) (at *flight, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, ok := f.flights[id]; ok {
		return at, false
	}
	if f.flights == nil {
		f.flights = map[ID]*flight{}
	}
	at = &flight{fingerprint: fingerprint, landed: make(chan struct{})}
	f.flights[id] = at
	return at, true
}

// land ends a flight. Its answer is given to those who wait.
func (f *flights) land(id ID, at *flight) {
	f.mu.Lock()
	delete(f.flights, id)
	f.mu.Unlock()
	close(at.landed)
}
