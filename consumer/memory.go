package consumer

import "sync"

// memory bounds what is fetched ahead, over all partitions of the process. Fetch loops that found it full are
// woken when some of it is given back.
type memory struct {
	limit int

	mu      sync.Mutex
	used    int
	waiters map[*wake]struct{}
}

func newMemory(limit int) *memory {
	return &memory{limit: limit, waiters: map[*wake]struct{}{}}
}

func (m *memory) take(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used += n
}

func (m *memory) giveBack(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	for w := range m.waiters {
		w.up()
	}
}

func (m *memory) inUse() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

func (m *memory) full() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used >= m.limit
}

// subscribe has w woken whenever memory is given back, until the returned function is called.
func (m *memory) subscribe(w *wake) (unsubscribe func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiters[w] = struct{}{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.waiters, w)
	}
}

// wake is a bell for one goroutine; ringing it twice before it is heard is ringing it once.
type wake struct{ c chan struct{} }

func newWake() *wake { return &wake{make(chan struct{}, 1)} }

func (w *wake) up() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}
