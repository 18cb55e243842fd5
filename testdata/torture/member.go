package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// member is one `firstseen run` after the other, as a supervisor keeps it.
type member struct {
	w      *world
	index  int
	config string
	log    string

	mu      sync.Mutex
	process *child.Process // nil: none runs
	killed  bool           // by us
	ending  bool           // asked to
	off     bool           // none is to run
}

func newMember(w *world, i int) *member {
	return &member{w: w, index: i, config: w.path(fmt.Sprintf("member-%d.yaml", i)),
		log: w.path(fmt.Sprintf("member-%d.log", i))}
}

// configure writes the member's config, with the log level of the day.
func (m *member) configure() error {
	return m.w.configure(m.config, m.w.proxy.dsn, fmt.Sprintf("127.0.0.1:%d", 19_000+m.index))
}

// keep runs it until ctx ends, and then ends it in good order.
func (m *member) keep(ctx context.Context, r *report) {
	if err := m.configure(); err != nil {
		r.fault("member %d: %v", m.index, err)
		return
	}
	for ctx.Err() == nil {
		if !m.isOff() {
			m.runOnce(ctx, r)
		}
		sleep(ctx, 500*time.Millisecond)
	}
}

// endLimit bounds the time that a member takes to end after SIGTERM: its README says 60 s.
const endLimit = 60 * time.Second

func (m *member) runOnce(ctx context.Context, r *report) {
	p, err := child.Start(child.Spec{Path: m.w.o.firstseen,
		Args: []string{"run", "--config", m.config}, LogFile: m.log})
	if err != nil {
		r.fault("member %d does not start: %v", m.index, err)
		return
	}
	r.count("starts of members")
	m.set(p)
	defer m.set(nil)
	watch := time.NewTicker(2 * time.Second)
	defer watch.Stop()
	for {
		select {
		case <-p.Done():
			if p.Err() != nil && !m.wasKilled() {
				r.fault("member %d ended by itself: %v (see %s)", m.index, p.Err(), m.log)
			}
			return
		case <-watch.C:
			r.memory(residentPeak(p.PID()))
		case <-ctx.Done():
			_ = p.Signal(syscall.SIGCONT)
			if p.Stop(syscall.SIGTERM, endLimit) {
				r.fault("member %d had to be killed: it ran on for %s after SIGTERM", m.index, endLimit)
			}
			return
		}
	}
}

func (m *member) set(p *child.Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process, m.killed, m.ending = p, false, false
}

func (m *member) wasKilled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.killed
}

// signal sends it, where anybody is there to get it.
func (m *member) signal(sig syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil && (sig != syscall.SIGTERM || !m.ending) { // a second one ends it at once
		m.ending = m.ending || sig == syscall.SIGTERM
		m.killed = m.killed || sig == syscall.SIGKILL
		_ = m.process.Signal(sig)
	}
}

// turn says whether one is to run.
func (m *member) turn(on bool) {
	m.mu.Lock()
	m.off = !on
	m.mu.Unlock()
	if !on {
		m.signal(syscall.SIGTERM)
	}
}

func (m *member) isOff() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// residentPeak is the most memory that a process has had, in bytes; 0 where that is not known.
func residentPeak(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	found := peakLine.FindSubmatch(status)
	if err != nil || found == nil {
		return 0
	}
	kib, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
