package main

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/cmd/internal/doctor"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/admin"
	"github.com/firstseen/firstseen/consumer/page"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// watchMemory is that of answers, which take a quarter.
const watchMemory = 64 << 20

// inboxHandler is the page over an inbox: the admin API is in this process, asked by nothing but the page, and lets in who
// comes by the link. No job, no retention and no consumer is at work here.
func inboxHandler(pool *pgxpool.Pool, inbox *operate.Inbox, of watched) (handler http.Handler, link string, err error) {
	token := secret()
	version, revision := builtFrom()
	s, err := service.New(service.Config{Group: of.group, Inbox: inbox.Name(), Shard: of.shard, Pool: pool, Version: version,
		Revision: revision, Actor: actor(), Settings: of.settings(token), Doctor: examiner(func() doctor.Case { return of.examined }),
		Logger: slog.New(slog.NewTextHandler(of.log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return nil, "", err
	}
	since := time.Now()
	s.Attach(service.Parts{Inbox: inbox, Memory: memory.New(watchMemory), Totals: func() handlers.Totals { return handlers.Totals{} },
		Status: func() consumer.Status { return consumer.Status{State: service.Watching, Since: since} }})
	api, err := admin.NewAPI(s)
	if err != nil {
		return nil, "", err
	}
	asked := http.NewServeMux()
	asked.Handle("/healthz", s.Probes())
	asked.Handle("/", api)
	ui, err := page.New(page.Config{API: asked, Logger: s.Config().Logger})
	if err != nil {
		return nil, "", err
	}
	once := &oneTime{page: ui, key: secret(), token: token, actor: of.actor}
	mux := http.NewServeMux()
	mux.Handle("/ui/", http.StripPrefix("/ui", ui))
	mux.Handle("GET /ui/start", once)
	mux.Handle("/{$}", http.RedirectHandler("/ui/", http.StatusSeeOther))
	return onThisHost(mux), "/ui/start?key=" + once.key, nil
}

// watched is what is known of an inbox beside what lies in it.
type watched struct {
	group, shard, actor string
	examined            doctor.Case
	live                service.Settings
	log                 io.Writer
}

// settings are the config's, but for who is let in: who has the token.
func (w watched) settings(token string) service.Settings {
	s := w.live
	s.Access = service.Access{WriteToken: token, Rate: uiRate}
	return s
}

// uiRate is for the one person who looks.
const uiRate = 50

func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// oneTime signs in who comes first with the key, under the name that the command line says.
type oneTime struct {
	page              http.Handler
	key, token, actor string
	used              atomic.Bool
}

func (o *oneTime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("key")), []byte(o.key)) != 1 || !o.used.CompareAndSwap(false, true) {
		http.Error(w, "the address is used already, or is not the one that was printed: end firstseen ui and start it again", http.StatusForbidden)
		return
	}
	form := url.Values{"token": {o.token}, "actor": {o.actor}}.Encode()
	in, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "/signin", strings.NewReader(form))
	if err != nil {
		http.Error(w, "the address can't be used", http.StatusInternalServerError)
		return
	}
	in.Host, in.RemoteAddr = r.Host, r.RemoteAddr
	in.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	o.page.ServeHTTP(w, in)
}
