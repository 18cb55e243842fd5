package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

// The bounds of the doctor's looks. One is at work at a time, however many ask; what it has found is kept, so that looking
// takes no more than a fifth of the time.
const (
	doctorLimit  = time.Minute
	doctorAge    = 30 * time.Second
	doctorPauses = 4 // times what a look has taken
	doctorBytes  = 8 << 20
	doctorPart   = 8                // of the memory for messages: the most is one of so many
	doctorRoom   = 10 * time.Second // how long it waits for that much memory
)

// ErrNoDoctor says that the program has nobody who looks: see Config.Doctor.
var ErrNoDoctor = errors.New("the program has no doctor")

// doctor keeps what was found last, and knows of the look that is under way.
type doctor struct {
	mu    sync.Mutex
	found view.Findings
	err   error // of the last look, which found nothing
	until time.Time
	over  chan struct{} // of the look that is under way; nil: none is
	end   context.CancelFunc
	ended bool // the service is: no look begins any more
}

// Examine tells what the doctor has found. Where that is older than some seconds it has him look anew, beside the
// request, and waits for that no longer than it is patient: what it tells then is what was found before, if anything
// was. Without a doctor the error is ErrNoDoctor.
func (s *Service) Examine(ctx context.Context, patience time.Duration) (view.Findings, error) {
	if s.cfg.Doctor == nil {
		return view.Findings{}, ErrNoDoctor
	}
	if over := s.beginLook(time.Now()); over != nil {
		wait := time.NewTimer(patience)
		defer wait.Stop()
		select {
		case <-over:
		case <-wait.C:
		case <-ctx.Done():
			return view.Findings{}, ctx.Err()
		}
	}
	d := &s.doctor
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.found
	found.Findings = append([]view.Finding{}, found.Findings...)
	return found, d.err
}

// beginLook has the doctor look where what he found is old. It gives the end of the look that is under way; nil: none is.
func (s *Service) beginLook(now time.Time) <-chan struct{} {
	d := &s.doctor
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over != nil || d.ended || now.Before(d.until) {
		return d.over
	}
	ctx, cancel := context.WithTimeout(context.Background(), doctorLimit)
	d.over, d.end, d.found.LookingSince, d.err = make(chan struct{}), cancel, view.Moment(now), nil
	go s.letLook(ctx, now) // endLooks waits for it
	return d.over
}

// letLook has the doctor look, and keeps what he finds.
func (s *Service) letLook(ctx context.Context, began time.Time) {
	findings, err := s.askDoctor(ctx)
	d := &s.doctor
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	d.until = time.Now().Add(max(doctorAge, doctorPauses*time.Since(began)))
	if d.found.LookingSince, d.err = nil, err; err == nil {
		d.found.Findings, d.found.LookedAt, d.found.Worst = findings, view.Moment(began), worstOf(findings)
	}
	close(d.over)
	d.over = nil
}

// askDoctor takes memory for the look, of what answers have, and survives what goes wrong in it.
func (s *Service) askDoctor(ctx context.Context) (findings []view.Finding, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	waiting, cancel := context.WithTimeout(ctx, doctorRoom)
	defer cancel()
	_, giveBack, err := s.borrow(waiting, doctorBytes, doctorPart, nil)
	if err != nil {
		return nil, httpjson.Errorf(http.StatusServiceUnavailable,
			"all memory for messages is in use, and none is left to look by; try again").Retry(doctorAge)
	}
	defer giveBack()
	return s.cfg.Doctor(ctx)
}

// worstOf is the worst level of findings.
func worstOf(findings []view.Finding) *string {
	worst := 0
	for i := range findings {
		worst = max(worst, slices.Index(view.Levels, findings[i].Level))
	}
	level := view.Levels[worst]
	return &level
}

// endLooks ends the look that is under way, and waits for that.
func (s *Service) endLooks() {
	d := &s.doctor
	d.mu.Lock()
	d.ended = true
	over := d.over
	if over != nil {
		d.end()
	}
	d.mu.Unlock()
	if over != nil {
		<-over
	}
}
