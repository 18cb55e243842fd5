// Package page is the operator's page: what the admin API has, as HTML for a person with a browser. It reads and changes
// by requests to the API only, in this process and with the visitor's own credential: so nobody may more by the page
// than by the API, and what the page can do, a script can do.
//
//	p, err := page.New(page.Config{API: api})
//	mux.Handle("/ui/", http.StripPrefix("/ui", p))
//
// Requests enter, and HTML leaves, made on the server: it reads the same without the script, which only keeps figures
// fresh and adds the reader's own time zone. Whatever comes from messages, from topics or from errors is shown as text,
// with what can't be seen in it made visible. No request goes to another host, and the browser is told to see to it.
// All addresses are relative, so that it works below any path of a proxy.
//
// Files in reading order: page.go, api.go (how the API is asked), session.go (who is signed in), overview.go, doctor.go, processes.go,
// lists.go (waiting, dead letters, conflicts, audit), message.go (one message), unmask.go (what is hidden of it), download.go (its value as a file), change.go (what is done, after it was confirmed) and jobs.go
// (to all that match), reruns.go, replays.go, render.go, text.go (how things are written), plot.go, diff.go; templates and static are embedded.
package page

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/firstseen/firstseen/dedup/httpjson"
)

// Config configures a Page.
type Config struct {
	// API answers below /api/v1, and /healthz beside it, as the admin API does. It is asked with the address, the TLS state
	// and the headers of the visitor's request, but with no cookie. Required.
	API http.Handler
	// Logger is told of what failed here; what failed in the API is in that one's log. Default slog.Default().
	Logger *slog.Logger
}

// Page serves the operator's page, at the paths below the one that it is mounted at. It is safe for concurrent use.
type Page struct {
	api      http.Handler
	failures *httpjson.Failures
	pages    map[string]*view
	changes  map[string]func(*visit) error
	sessions sessions
	done     outcomes
	secret   [32]byte      // of the tokens in forms
	building chan struct{} // pages that are made: the API's answers for them are in memory
	sending  chan struct{} // and sent: who reads slowly holds one
}

// How many pages are made, and held in memory, at a time.
const (
	maxBuilding = 2
	maxSending  = 8
)

// New makes a Page.
func New(cfg Config) (*Page, error) {
	if cfg.API == nil {
		return nil, errors.New("new page: an API is required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	p := &Page{api: cfg.API, failures: httpjson.NewFailures(cfg.Logger), building: make(chan struct{}, maxBuilding),
		sending: make(chan struct{}, maxSending), pages: views(),
		changes: map[string]func(*visit) error{"confirm": (*visit).confirm, "apply": (*visit).apply,
			"startjob": (*visit).startJob, "canceljob": (*visit).cancelJob, "pausejob": (*visit).pauseJob,
			"resumejob": (*visit).resumeJob, "startrerun": (*visit).startRerun, "startreplay": (*visit).startReplay, "requests": (*visit).requests,
			"unmask": (*visit).unmask}}
	_, _ = rand.Read(p.secret[:]) // it never fails
	return p, nil
}

// policy has the browser run and load nothing but the page's own files, and send forms nowhere else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ownPage lets through what the page's own forms send.
var ownPage = http.NewCrossOriginProtection()

// maxForm caps a form's bytes: a thousand selected rows.
const maxForm = 512 << 10

// ServeHTTP answers a request for a path below the page's.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard(w.Header())
	name := strings.TrimPrefix(r.URL.Path, "/")
	if file, ok := files[name]; ok {
		file.serve(w, r)
		return
	}
	v := &visit{page: p, w: w, r: r, name: name, now: time.Now()}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		v.look()
	case http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		v.post()
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		v.refuse(problem(http.StatusMethodNotAllowed, "the page is read, and its forms are sent"))
	}
}

func guard(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// visit is one request, and who makes it.
type visit struct {
	page    *Page
	w       http.ResponseWriter
	r       *http.Request
	name    string // of the page that is asked for
	now     time.Time
	session *session // nil: the request brings its own credential, or none
	key     string   // an Idempotency-Key to ask for
	access  access
}

// look answers with a page, or with the form to sign in, which leads back to it.
func (v *visit) look() {
	if v.name == "download" {
		v.download()
		return
	}
	view := v.page.pages[v.name]
	if view == nil {
		v.refuse(problem(http.StatusNotFound, "there is no such page"))
		return
	}
	if v.enter() {
		v.finish(v.show(view))
	}
}

// post does what a form asks for.
func (v *visit) post() {
	if ownPage.Check(v.r) != nil {
		v.refuse(problem(http.StatusForbidden, "the form was sent by a page of another server"))
		return
	}
	if err := v.r.ParseForm(); err != nil {
		v.refuse(problem(http.StatusBadRequest, "the form did not arrive whole, or is too large"))
		return
	}
	if v.name == "signin" {
		v.signIn()
		return
	}
	do := v.page.changes[v.name]
	switch {
	case v.name == "signout":
		v.signOut()
	case do == nil:
		v.refuse(problem(http.StatusNotFound, "there is no such form"))
	case !v.enter():
	case !v.ownForm():
		v.refuse(problem(http.StatusForbidden, "the form is an old one: go back, reload the page and send it again"))
	default:
		v.finish(do(v))
	}
}

// enter finds out who asks, by the API; where that is not known, or not let in, it answers.
func (v *visit) enter() bool {
	v.session = v.page.sessions.of(v.r, v.now)
	err := v.get("/access", nil, &v.access)
	switch {
	case err == nil:
		return true
	case statusOf(err) == http.StatusUnauthorized:
		v.askToSignIn("")
	default:
		v.finish(err)
	}
	return false
}

// finish answers with the error that there was.
func (v *visit) finish(err error) {
	if err != nil {
		v.refuse(err)
	}
}
