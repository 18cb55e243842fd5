package admin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/firstseen/firstseen/consumer"
)

// vitals are what the server's own loop notes about the program, once a second.
type vitals struct {
	last   atomic.Int64 // when the loop came round, in Unix nanoseconds
	joined atomic.Bool  // the consumer has come as far as joining its group
}

const (
	beatInterval = time.Second
	// stillLimit is after how long without a beat something has the whole program stand still.
	stillLimit = 30 * time.Second
)

func (v *vitals) beat(now time.Time) { v.last.Store(now.UnixNano()) }

// still is how long the loop has not come round.
func (v *vitals) still(now time.Time) time.Duration { return now.Sub(time.Unix(0, v.last.Load())) }

// watch asks the consumer how it is. It waits for nothing but the locks within them: where one of those is never given
// back, or the process gets no time, the beats stop.
func (s *Server) watch(ctx context.Context) {
	beats := time.NewTicker(beatInterval)
	defer beats.Stop()
	for {
		s.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-beats.C:
		}
	}
}

func (s *Server) look(now time.Time) {
	status, _ := s.status()
	if status.State == consumer.Joining || status.State == consumer.Consuming {
		s.vitals.joined.Store(true)
	}
	s.vitals.beat(now)
}
