package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/firstseen/firstseen/dedup/httpjson"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static/*
var staticFiles embed.FS

// view is a page that is read: data makes what its template shows.
type view struct {
	title    string
	template string
	live     bool // its figures are kept fresh
	data     func(*visit) (any, error)
}

// views are all pages, by the last part of their path.
func views() map[string]*view {
	return map[string]*view{
		"":          {"Overview", "overview", true, (*visit).overview},
		"doctor":    {"Doctor", "doctor", false, (*visit).doctor},
		"processes": {"Processes", "processes", true, (*visit).processes},
		"replays":   {"Replays", "replays", true, (*visit).replays},
		"waiting":   {"Waiting", "waiting", true, (*visit).waiting},
		"dead":      {"Dead letters", "dead", false, (*visit).dead},
		"letter":    {"Dead letter", "letter", false, (*visit).letter},
		"message":   {"Message", "message", false, (*visit).message},
		"content":   {"Content", "content", false, (*visit).content},
		"conflicts": {"Conflicts", "conflicts", false, (*visit).conflicts},
		"conflict":  {"Conflict", "conflict", false, (*visit).conflict},
		"pauses":    {"Pauses", "pauses", true, (*visit).pauses},
		"audit":     {"Audit", "audit", false, (*visit).audit},
		"size":      {"Size", "size", false, (*visit).size},
		"outbox":    {"Outbox", "outbox", true, (*visit).outbox},
		"requests":  {"Requests", "requests", false, func(*visit) (any, error) { return requestsPage{}, nil }},
		"bulk":      {"All that match", "bulk", false, (*visit).bulk},
		"jobs":      {"Jobs", "jobs", true, (*visit).jobs},
		"job":       {"Job", "job", true, (*visit).job},
		"replay":    {"Replay", "replay", false, (*visit).replay},
		"rerun":     {"Rerun", "rerun", false, (*visit).rerun},
		"done":      {"Done", "done", false, (*visit).outcome},
	}
}

// tab is an entry of the navigation.
type tab struct{ Page, Text string }

var tabs = []tab{{"", "Overview"}, {"doctor", "Doctor"}, {"waiting", "Waiting"}, {"dead", "Dead letters"}, {"jobs", "Jobs"},
	{"conflicts", "Conflicts"}, {"message", "Find"}, {"outbox", "Outbox"}, {"requests", "Requests"}, {"processes", "Processes"}, {"rerun", "Rerun"}, {"replays", "Replays"}, {"pauses", "Pauses"}, {"audit", "Audit"},
	{"size", "Size"}}

// frame is what is around every page.
type frame struct {
	Title   string
	Page    string
	Live    bool
	Again   int   // seconds until a browser is to ask again, without the script; 0: it is not
	Tabs    []tab // none: nobody is signed in
	Access  access
	Actor   string
	Session bool
	Form    string // what a form has to bring along
	At      time.Time
	Body    any
	CSS, JS string // addresses of the files
	Icon    string
}

// show answers with a page.
func (v *visit) show(of *view) error {
	leave, err := v.await(v.page.sending)
	if err != nil {
		return err
	}
	defer leave()
	content, err := v.build(of)
	if err != nil {
		return err
	}
	v.send(http.StatusOK, content)
	return nil
}

// build makes a page.
func (v *visit) build(of *view) ([]byte, error) {
	leave, err := v.await(v.page.building)
	if err != nil {
		return nil, err
	}
	defer leave()
	body, err := of.data(v)
	if err != nil {
		return nil, err
	}
	return v.render(of.template, v.frame(of, body)), nil
}

// await waits for the visitor's turn, which ends when leave is called.
func (v *visit) await(turn chan struct{}) (leave func(), err error) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-v.r.Context().Done():
		return nil, v.r.Context().Err()
	}
}

func (v *visit) frame(of *view, body any) frame {
	f := frame{Title: of.title, Page: v.name, Live: of.live, Tabs: tabs, Access: v.access, Session: v.session != nil,
		Form: v.formToken(), Body: body}
	if waits, ok := body.(interface{ refreshAfter() int }); ok {
		f.Again = waits.refreshAfter()
	}
	if v.session != nil {
		f.Actor = v.session.actor
	}
	return f
}

// refuse answers with what is wrong.
func (v *visit) refuse(err error) {
	known, ok := errors.AsType[*httpjson.Problem](err)
	if !ok {
		known = problem(http.StatusInternalServerError, "it failed: the log says why, beside this request's number")
		known.Request = v.page.failures.Log(v.r, "the page could not be made", err)
	}
	of := &view{title: http.StatusText(known.Status)}
	f := frame{Title: of.title, Body: known}
	if v.access.Client != "" {
		f = v.frame(of, known)
	}
	v.send(known.Status, v.render("problem", f))
}

// render fills a template in.
func (v *visit) render(name string, f frame) []byte {
	f.At, f.CSS, f.JS, f.Icon = v.now.UTC(), address("page.css"), address("page.js"), address("icon.svg")
	var out bytes.Buffer
	if err := templates[name].ExecuteTemplate(&out, "frame.html", f); err != nil {
		panic(fmt.Errorf("template %s: %w", name, err)) // the server answers, and logs it
	}
	return out.Bytes()
}

func (v *visit) send(status int, content []byte) {
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(content)
}

// templates are the pages, each with what is around it.
var templates = parse()

func parse() map[string]*template.Template {
	common := template.Must(template.New("frame.html").Funcs(functions).ParseFS(templateFiles,
		"templates/frame.html", "templates/parts.html"))
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err)
	}
	out := map[string]*template.Template{}
	for _, file := range names {
		if name := strings.TrimSuffix(path.Base(file), ".html"); name != "frame" && name != "parts" {
			out[name] = template.Must(template.Must(common.Clone()).ParseFS(templateFiles, file))
		}
	}
	return out
}

// asset is a file that never changes under its address.
type asset struct {
	content []byte
	kind    string
	tag     string
}

var files = load()

func load() map[string]asset {
	out := map[string]asset{}
	for name, kind := range map[string]string{"page.css": "text/css", "page.js": "text/javascript",
		"icon.svg": "image/svg+xml"} {
		content, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		out[name] = asset{content, kind + "; charset=utf-8", hex.EncodeToString(sum[:6])}
	}
	return out
}

func address(name string) string { return name + "?" + files[name].tag }

// serve answers with the file, to everybody: it says nothing of the program.
func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery == a.tag {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", a.kind)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.content))
}
