package admin

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/consumer"
)

// Probe is the answer to /livez and /readyz.
type Probe struct {
	Status string `json:"status" enum:"ok,failed"`
	Reason string `json:"reason" doc:"Why it is so, in words."`
}

func answerProbe(w http.ResponseWriter, ok bool, reason string) {
	status, answer := http.StatusOK, Probe{"ok", reason}
	if !ok {
		status, answer = http.StatusServiceUnavailable, Probe{"failed", reason}
	}
	_ = httpjson.Write(w, status, httpjson.Type, answer) // two texts: it can't fail
}

// livez fails where only a restart helps. Nothing outside of the process is asked.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	if silent := s.liveness.silentFor(time.Now()); silent > silenceLimit {
		answerProbe(w, false, "the program has stood still for "+spoken(silent))
		return
	}
	answerProbe(w, true, "the program is at work")
}

// readyz fails before the program has done what it has to do at the start, and once it is about to end. An outage
// later on is waited for, and a program that waits is ready.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	status, parts := s.status()
	switch {
	case s.ending.Err() != nil || status.State == consumer.Ended:
		answerProbe(w, false, "the program is ending")
	case parts == nil:
		answerProbe(w, false, "Postgres has not been reached yet, or its schema is not there")
	case !s.liveness.joined.Load() && status.State == consumer.Starting:
		answerProbe(w, false, "no topic of the config has been found yet, or Kafka has not been reached")
	default:
		answerProbe(w, true, "the program is "+string(status.State))
	}
}

// healthCache keeps what Postgres said until it is to be asked again.
type healthCache struct {
	mu    sync.Mutex
	until time.Time
	facts facts
}

// However often health is asked for, Postgres is asked seldom: after two seconds, and only so that the answers take no
// more than a twentieth of the time; but after ten seconds in any case, so that nobody is told of an outage for long
// that is over.
const (
	healthAge     = 2 * time.Second
	healthShare   = 20
	healthPause   = 10 * time.Second
	healthTimeout = 5 * time.Second
)

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	h := s.examine()
	status := http.StatusOK
	if h.Status == unhealthy {
		status = http.StatusServiceUnavailable
	}
	if err := httpjson.Write(w, status, httpjson.Type, h); err != nil {
		s.fail(r, err).Write(w)
	}
}

// examine judges the program as it is now; what Postgres says may be some seconds old.
func (s *Server) examine() Health {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	status, parts := s.status()
	if began := time.Now(); began.After(s.health.until) || (parts != nil) != s.health.facts.opened {
		s.health.facts = s.askPostgres(parts)
		s.health.until = time.Now().Add(restAfter(time.Since(began)))
	}
	f := s.health.facts
	f.now, f.cfg, f.status = time.Now(), s.cfg.Live.Load().Health, status
	if parts != nil {
		f.rates = parts.Window.Rates()
	}
	return f.judge()
}

// restAfter is how long Postgres is left alone after answers that took so long.
func restAfter(took time.Duration) time.Duration {
	return min(max(healthAge, healthShare*took), healthPause)
}

func (s *Server) askPostgres(parts *Parts) (f facts) {
	f.opened = parts != nil
	if parts == nil {
		return f
	}
	ctx, cancel := context.WithTimeout(s.lifetime, healthTimeout)
	defer cancel()
	if f.postgres = s.cfg.Pool.Ping(ctx); f.postgres != nil {
		return f
	}
	var err [3]error
	if dead, failed := parts.Inbox.RecentlyDead(ctx, time.Hour); failed == nil {
		f.dead = &dead
	} else {
		err[2] = failed
	}
	f.backlog, err[0] = parts.Inbox.Backlog(ctx)
	f.pauses, err[1] = parts.Inbox.Pauses(ctx)
	if failed := errors.Join(err[:]...); failed != nil && s.lifetime.Err() == nil {
		s.log.Debug("health could not ask Postgres everything", "error", failed) // the answer says so
	}
	return f
}

// liveness is what the server's own loop notes about the program, once a second.
type liveness struct {
	last   atomic.Int64 // when the loop came round, in Unix nanoseconds
	joined atomic.Bool  // the consumer has come as far as joining its group
}

const (
	heartbeatInterval = time.Second
	// silenceLimit is after how long without a heartbeat something has the whole program stand still.
	silenceLimit = 30 * time.Second
)

func (l *liveness) beat(now time.Time) { l.last.Store(now.UnixNano()) }

// silentFor is how long the loop has not come round.
func (l *liveness) silentFor(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, l.last.Load()))
}

// watch asks the consumer how it is. It waits for nothing but the locks within them: where one of those is never given
// back, or the process gets no time, the heartbeats stop.
func (s *Server) watch(ctx context.Context) {
	heartbeats := time.NewTicker(heartbeatInterval)
	defer heartbeats.Stop()
	for {
		s.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-heartbeats.C:
		}
	}
}

func (s *Server) look(now time.Time) {
	status, _ := s.status()
	if status.State == consumer.Joining || status.State == consumer.Consuming {
		s.liveness.joined.Store(true)
	}
	s.liveness.beat(now)
}
