package service

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

// Probe is the answer to /livez and /readyz.
type Probe struct {
	Status string `json:"status" enum:"ok,failed"`
	Reason string `json:"reason" doc:"Why it is so, in words."`
}

// Probes answers /livez, /readyz and /healthz, to everybody who reaches it, with a status and its reason as JSON, and
// 503 where that is no good one. /livez fails where only a restart helps; /readyz before the program has done what it
// has to do at the start, and once it is about to end; /healthz where it is unhealthy.
func (s *Service) Probes() http.Handler {
	mux := http.NewServeMux()
	for path, probe := range map[string]http.HandlerFunc{"/livez": s.livez,
		"/readyz": s.readyz, "/healthz": s.healthz} {
		mux.Handle(path, httpjson.Methods{http.MethodGet: probe})
	}
	return mux
}

func answerProbe(w http.ResponseWriter, ok bool, reason string) {
	status, answer := http.StatusOK, Probe{"ok", reason}
	if !ok {
		status, answer = http.StatusServiceUnavailable, Probe{"failed", reason}
	}
	_ = httpjson.Write(w, status, httpjson.Type, answer) // two texts: it can't fail
}

// livez fails where only a restart helps. Nothing outside of the process is asked.
func (s *Service) livez(w http.ResponseWriter, _ *http.Request) {
	if silent := s.liveness.silentFor(time.Now()); silent > silenceLimit {
		answerProbe(w, false, "the program has stood still for "+spoken(silent))
		return
	}
	answerProbe(w, true, "the program is at work")
}

// readyz fails before the program has done what it has to do at the start, and once it is about to end. An outage
// later on is waited for, and a program that waits is ready.
func (s *Service) readyz(w http.ResponseWriter, _ *http.Request) {
	status := s.Status()
	switch {
	case s.ends() || status.State == consumer.Ended:
		answerProbe(w, false, "the program is ending")
	case s.parts.Load() == nil:
		answerProbe(w, false, "Postgres has not been reached yet, or its schema is not there")
	case !s.liveness.joined.Load() && status.State == consumer.Starting:
		answerProbe(w, false, "no topic of the config has been found yet, or Kafka has not been reached")
	default:
		answerProbe(w, true, "the program is "+string(status.State))
	}
}

// ends says that the program is about to end.
func (s *Service) ends() bool {
	started := s.ending.Load()
	return started != nil && (*started).Err() != nil
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

func (s *Service) healthz(w http.ResponseWriter, r *http.Request) {
	h := s.Health()
	status := http.StatusOK
	if h.Status == unhealthy {
		status = http.StatusServiceUnavailable
	}
	if err := httpjson.Write(w, status, httpjson.Type, h); err != nil {
		p := httpjson.Errorf(http.StatusInternalServerError, "it failed; the log says why, beside this request's number")
		p.Request = s.failures.Log(r, "health could not be told", err)
		p.Write(w)
	}
}

// Health judges the program as it is now; what Postgres says may be some seconds old.
func (s *Service) Health() Health {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	status, parts := s.Status(), s.parts.Load()
	if began := time.Now(); began.After(s.health.until) || (parts != nil) != s.health.facts.opened {
		s.health.facts = s.askPostgres(parts)
		s.health.until = time.Now().Add(restAfter(time.Since(began)))
	}
	f := s.health.facts
	f.now, f.limits, f.status, f.shard = time.Now(), s.Settings().Health, status, s.cfg.Shard
	if parts != nil {
		f.rates = parts.window.Rates()
	}
	if f.outbox != nil {
		f.outbox.rates = parts.relayed.Rates()
	}
	return f.judge()
}

// restAfter is the time that Postgres is left alone after answers that took so long.
func restAfter(took time.Duration) time.Duration {
	return min(max(healthAge, healthShare*took), healthPause)
}

func (s *Service) askPostgres(parts *attached) (f facts) {
	f.opened = parts != nil
	if parts == nil {
		return f
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	if f.postgres = s.cfg.Pool.Ping(ctx); f.postgres != nil {
		return f
	}
	var err [4]error
	if dead, failed := parts.Inbox.RecentlyDead(ctx, time.Hour); failed == nil {
		f.dead = &dead
	} else {
		err[2] = failed
	}
	f.backlog, err[0] = parts.Inbox.Backlog(ctx)
	f.pauses, err[1] = parts.Inbox.Pauses(ctx)
	f.outbox, err[3] = askOutbox(ctx, parts)
	if failed := errors.Join(err[:]...); failed != nil {
		s.log.Debug("health could not ask Postgres everything", "error", failed) // the answer says so
	}
	return f
}

// liveness is noted by the service's own loop, once a second.
type liveness struct {
	last   atomic.Int64 // when the loop came round, in Unix nanoseconds
	joined atomic.Bool  // the consumer has come as far as joining its group
}

const (
	heartbeatInterval = time.Second
	// silenceLimit bounds the time without a heartbeat: beyond it something has the whole program stand still.
	silenceLimit = 30 * time.Second
)

func (l *liveness) beat(now time.Time) { l.last.Store(now.UnixNano()) }

// silentFor is the time since the loop came round.
func (l *liveness) silentFor(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, l.last.Load()))
}

// watch asks the consumer how it is. It waits for nothing but the locks within them: where one of those is never given
// back, or the process gets no time, the heartbeats stop.
func (s *Service) watch(ctx context.Context) {
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

func (s *Service) look(now time.Time) {
	status := s.Status()
	if status.State == consumer.Joining || status.State == consumer.Consuming {
		s.liveness.joined.Store(true)
	}
	s.liveness.beat(now)
}
