package handlers

// wakes are rung when something was parked that is due: one bell for the workers of attached handlers, and one for each
// detached handler, so that none takes another's.
type wakes struct {
	attached chan struct{}
	detached map[*registered]chan struct{}
}

func newWakes(targets []*registered) wakes {
	w := wakes{attached: make(chan struct{}, 1), detached: map[*registered]chan struct{}{}}
	for _, target := range targets {
		if target.detached != nil {
			w.detached[target] = make(chan struct{}, 1)
		}
	}
	return w
}

// ring has the workers of targets look at once.
func (w *wakes) ring(targets []*registered) {
	for _, target := range targets {
		bell := w.attached
		if target.detached != nil {
			bell = w.detached[target]
		}
		select {
		case bell <- struct{}{}:
		default:
		}
	}
}
