package devstack

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup/httpjson"
)

// webpage shows a run in a browser, and has buttons that disturb it. It is for people on this host: it listens on the
// loopback, answers requests for a loopback name only, as DNS can lead any other name there, and takes a press of a
// button from its own page only. A nil webpage is one that nobody asked for. It is safe for concurrent use.
type webpage struct {
	http    *http.Server
	ln      net.Listener
	serving sync.WaitGroup

	mu       sync.Mutex
	faults   *faults // nil: nothing runs yet
	last     state
	looked   time.Time     // when somebody looked last
	told     bool          // of the end
	farewell chan struct{} // closed then
}

// state is what the page shows: the figures, as a script can read them, and what they mean.
type state struct {
	Phase    string     `json:"phase"`             // starting, running or ended
	Operator string     `json:"operator"`          // the operator's page
	Verdict  string     `json:"verdict"`           // right, wrong or empty: nothing can be told yet
	Why      string     `json:"why"`               // a sentence
	Now      string     `json:"now"`               // what happens, in a sentence
	Trouble  bool       `json:"trouble"`           // something is down
	Down     bool       `json:"down"`              // the consumer is dead
	Refused  bool       `json:"refused"`           // the handler fails for one account
	Chaos    bool       `json:"chaos"`             // kills come by themselves
	Counts   *counts    `json:"counts,omitempty"`  // none yet while it starts
	Samples  []moment   `json:"samples,omitempty"` // of the last minute
	Events   []incident `json:"events,omitempty"`  // the last ones, newest first
	Resend   int        `json:"resend"`            // how many messages the button sends again
}

// counts are the numbers of the figures that are shown. Balance and due belong to one moment at which both were known.
type counts struct {
	Clock      string `json:"clock"`
	Produced   int64  `json:"produced"`
	Copies     int64  `json:"copies"`
	Received   int64  `json:"received"`
	Effects    int64  `json:"effects"`
	Duplicates int64  `json:"duplicates"`
	Parked     int64  `json:"parked"`
	Lag        int64  `json:"lag"`
	Crashes    int    `json:"crashes"`
	Rate       int64  `json:"rate"`
	Balance    int64  `json:"balance"`
	Due        int64  `json:"due"`
}

// moment is a sample of what the page draws.
type moment struct {
	At         int64 `json:"at"` // milliseconds since the start
	Produced   int64 `json:"produced"`
	Effects    int64 `json:"effects"`
	Duplicates int64 `json:"duplicates"`
	Crashes    int   `json:"crashes"`
	Down       bool  `json:"down"`
}

// incident is an event, as the other views tell of it.
type incident struct {
	Clock string `json:"clock"`
	Text  string `json:"text"`
}

const (
	drawn     = time.Minute
	incidents = 8
	lastLook  = 2 * time.Second // between two looks of a page that is open, and some
)

// openWebpage listens and answers, from before there is anything to show, and says where. It gives nil where the
// options name no address. The page has to be stopped.
func openWebpage(ctx context.Context, o *Options) (*webpage, error) {
	if o.Listen == "" {
		return nil, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve the page: %w", err)
	}
	p := &webpage{ln: ln, farewell: make(chan struct{}), last: state{Phase: "starting", Resend: resendMessages,
		Why: "Whether it is right can be told once the first messages are booked.",
		Now: "Postgres and Kafka are starting, which takes some seconds. The very first time, Postgres’ programs are fetched."}}
	p.http = &http.Server{Handler: p.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	p.serving.Go(func() { _ = p.http.Serve(ln) })
	p.announce(o.Out)
	return p, nil
}

// announce says where the page is, and what is to be seen there.
func (p *webpage) announce(out io.Writer) {
	say(out, "Open  %s  and watch the stream as it flows.", p.address())
	say(out, "Kill the consumer there, send messages again, make the handler fail: the balance stays right.")
	say(out, "")
}

// address is the page's; empty: there is none.
func (p *webpage) address() string {
	if p == nil {
		return ""
	}
	return "http://" + p.ln.Addr().String() + "/"
}

// offer has the buttons do something.
func (p *webpage) offer(f *faults, operator string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.last.Operator = f, operator
}

func (p *webpage) show(f *figures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.last
	s.Phase, s.Down, s.Refused, s.Chaos = "running", f.Down > 0, f.Refused > 0, f.Chaos
	s.Now, s.Trouble = f.now()
	c := counts{Clock: clock(f.Elapsed), Produced: f.Produced, Copies: f.Produced - f.Total.Unique, Received: f.Received,
		Effects: f.Effects, Duplicates: f.Received - f.New, Parked: f.Parked, Lag: f.Lag, Crashes: f.Crashes,
		Rate: int64(f.Rate)}
	switch {
	case f.Known:
		s.Verdict, s.Why = f.verdict()
		c.Balance, c.Due = f.Balance, f.due().Balance
	case s.Counts != nil: // the producer's ledger is late
		c.Balance, c.Due = s.Counts.Balance, s.Counts.Due
	}
	s.Counts = &c
	p.sample(f)
}

func (p *webpage) sample(f *figures) {
	s := append(p.last.Samples, moment{At: f.Elapsed.Milliseconds(), Produced: f.Produced, Effects: f.Effects,
		Duplicates: f.Received - f.New, Crashes: f.Crashes, Down: f.Down > 0})
	for len(s) > 2 && time.Duration(s[len(s)-1].At-s[1].At)*time.Millisecond > drawn {
		s = s[1:]
	}
	p.last.Samples = append([]moment(nil), s...) // what was shown stays as it is
}

func (p *webpage) event(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := "00:00"
	if p.last.Counts != nil {
		at = p.last.Counts.Clock
	}
	events := append([]incident{{at, text}}, p.last.Events...)
	p.last.Events = events[:min(len(events), incidents)]
}

// close takes the buttons away.
func (p *webpage) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}

// end has the page show how it ended, as long as the process is there.
func (p *webpage) end(s Summary, err error) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last.Phase, p.last.Down, p.last.Refused, p.last.Trouble = "ended", false, false, err != nil
	p.last.Now = "The demo has ended; its Postgres and its Kafka are gone."
	switch {
	case err != nil:
		p.last.Verdict, p.last.Why = "", "It ended early: "+err.Error()
	case s.OK:
		p.last.Verdict, p.last.Why = "right", strings.Join(strings.Fields(s.String()), " ")
	default:
		p.last.Verdict, p.last.Why = "wrong", s.String()
	}
}

// stop ends the server, once whoever has the page open has seen how it ended; that takes two seconds at most. Requests that
// are open then are cut off.
func (p *webpage) stop() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastLook)
	defer cancel()
	if p.watched() {
		select {
		case <-p.farewell:
		case <-ctx.Done():
		}
	}
	_ = p.http.Shutdown(ctx)
	_ = p.http.Close()
	p.serving.Wait()
}

// watched reports whether somebody is about to look how it ended.
func (p *webpage) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.Phase == "ended" && time.Since(p.looked) < lastLook
}

//go:embed static
var static embed.FS

// handler is all that the page answers.
func (p *webpage) handler() http.Handler {
	mux := http.NewServeMux()
	for path, file := range map[string]string{"/{$}": "demo.html", "/demo.js": "demo.js", "/demo.css": "demo.css",
		"/icon.svg": "icon.svg"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, static, "static/"+file)
		})
	}
	mux.HandleFunc("GET /state", p.answerState)
	mux.HandleFunc("POST /kill", p.press(func(_ context.Context, f *faults) error { f.consumers.kill(); return nil }))
	mux.HandleFunc("POST /resend", p.press(func(ctx context.Context, f *faults) error { return f.sendAgain(ctx) }))
	mux.HandleFunc("POST /fail", p.press(func(ctx context.Context, f *faults) error { return f.failHandler(ctx) }))
	mux.HandleFunc("POST /chaos", p.press(func(_ context.Context, f *faults) error { f.toggleChaos(); return nil }))
	return guarded(http.NewCrossOriginProtection().Handler(mux))
}

const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guarded refuses what asks for a host of another name, and tells browsers to load and run the page's own files only.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpjson.ThisHost(r.Host) {
			http.Error(w, "The request is for a host of another name; ask for 127.0.0.1.", http.StatusForbidden)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func (p *webpage) answerState(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	s := p.last
	p.looked = time.Now()
	if s.Phase == "ended" && !p.told {
		p.told = true
		close(p.farewell)
	}
	p.mu.Unlock()
	_ = httpjson.Write(w, http.StatusOK, httpjson.Type, s)
}

// errNothingRuns is the answer to a button while there is nothing that it could disturb.
var errNothingRuns = errors.New("nothing runs, not yet or not any more")

// press is the answer to a button.
func (p *webpage) press(do func(context.Context, *faults) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		f := p.faults
		p.mu.Unlock()
		err := errNothingRuns
		if f != nil {
			err = do(r.Context(), f)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}
