package receiver

import (
	"hash/fnv"
	"net/http"
	"strconv"
	"time"
)

// fault is what happens to a call.
type fault struct {
	before bool // nothing is done for it
	code   int  // of the answer; 0: there is none
	reset  bool // the connection is reset, else it stays silent
	delay  time.Duration
}

// late is less than a webhook's time limit in a crash test, and more than most answers take.
const late = 150 * time.Millisecond

// ways are all that can happen to a call.
var ways = []fault{
	{},
	{code: http.StatusInternalServerError},
	{code: http.StatusNoContent, delay: late},
	{reset: true},
	{code: http.StatusTooManyRequests, before: true},
	{code: http.StatusInternalServerError, before: true},
	{reset: true, before: true},
}

// well is the answer to a call that nothing happens to.
var well = fault{code: http.StatusNoContent}

// faults are those that calls have met.
type faults struct {
	turn   uint64         // of the ways
	of     map[string]int // how many a key has met
	well   int            // calls since the last one
	silent bool           // a call is left without an answer now
}

const (
	// faultsOfKey is the most that one key meets.
	faultsOfKey = 2
	// wellBetween are the calls that go well between two faults, so that no outage is seen in them: then messages would
	// wait for half a minute.
	wellBetween = 3
)

// choose says what is to happen to a call.
func (r *Receiver) choose(key string) fault {
	const oneIn = 2
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &r.faults
	if !r.cfg.Fails || f.of[key] >= faultsOfKey || f.well < wellBetween || dice(r.cfg.Seed, key)%oneIn != 0 {
		f.well++
		return well
	}
	way := ways[f.turn%uint64(len(ways))]
	if f.turn++; way == ways[0] && f.silent {
		f.well++
		return well
	}
	if f.of == nil {
		f.of = map[string]int{}
	}
	f.of[key]++
	f.well, f.silent = 0, f.silent || way == ways[0]
	return way
}

// refused notes a call that the receiver itself has refused.
func (r *Receiver) refused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults.well = 0
}

// dice is a number of its own for each key and seed.
func dice(seed uint64, key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.FormatUint(seed, 10) + " " + key))
	return h.Sum64() >> 8
}

// meet answers as a fault has it, or not.
func (r *Receiver) meet(w http.ResponseWriter, req *http.Request, f fault) {
	switch {
	case f.reset:
		reset(w)
	case f.code == 0:
		r.stall(req)
	default:
		r.wait(req, f.delay)
		w.WriteHeader(f.code)
	}
}

// stall waits until who calls has enough of it.
func (r *Receiver) stall(req *http.Request) {
	r.wait(req, callLimit)
	r.mu.Lock()
	r.faults.silent = false
	r.mu.Unlock()
	panic(http.ErrAbortHandler)
}

func (r *Receiver) wait(req *http.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
	case <-r.ended:
	}
}

// reset ends the connection with a RST.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, is := conn.(interface{ SetLinger(sec int) error }); is {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
