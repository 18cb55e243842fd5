package consumer

// admitted waits for a slot, and while what it would be used for is paused. It says whether it got one before the
// session ended.
func (w *worker) admitted() bool {
	s, p := w.session, w.partition
	for w.unpaused() && s.c.slots.Take(s.ctx) {
		if paused, _ := s.c.processor.Paused(p.Topic, p.Partition); !paused {
			return true
		}
		s.c.slots.Give() // it was paused while others had the slots
	}
	return false
}

// unpaused waits while the partition, or its topic, is paused. What it has fetched is given up meanwhile: the others
// need the room. It says whether the session is still alive.
func (w *worker) unpaused() bool {
	s, p := w.session, w.partition
	rested := false
	for s.ctx.Err() == nil {
		paused, changed := s.c.processor.Paused(p.Topic, p.Partition)
		if !paused {
			if rested {
				p.Resume(w.next)
				return w.await()
			}
			return true
		}
		if !rested {
			rested = true
			w.rest()
			w.excuse()
		}
		select {
		case <-s.ctx.Done():
		case <-changed:
		}
	}
	return false
}

// excuse says in Postgres that the position was acquired and did not move for another reason than a death, unless a
// message is suspected already: a process that ends while its partition is paused must not make one suspicious.
func (w *worker) excuse() {
	if !w.guard.Suspects() {
		w.leave()
	}
}
