package request

import "sync"

// CodeBusy refuses a request where no place is free: 503.
const CodeBusy = "busy"

// Places limit the requests that are worked on at once, say. They are safe for concurrent use.
type Places chan struct{}

// NewPlaces makes n places, all of them free.
func NewPlaces(n int) Places { return make(Places, n) }

// Take takes a place if one is free, until leave is called, which may be done more than once.
func (p Places) Take() (leave func(), free bool) {
	select {
	case p <- struct{}{}:
		return sync.OnceFunc(func() { <-p }), true
	default:
		return nil, false
	}
}
