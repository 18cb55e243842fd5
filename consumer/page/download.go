package page

import (
	"net/http"

	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

// download hands a message's value on as the API sends it, as a file; nothing of it is kept here.
func (v *visit) download() {
	if !v.enter() {
		return
	}
	leave, err := v.await(v.page.sending)
	if err != nil {
		return // the visitor is gone
	}
	defer leave()
	r, err := v.request(http.MethodGet, prefix+"/messages/value", only(v.r.URL.Query(), "status", "handler", "tenant", "id"), nil)
	if err != nil {
		v.refuse(err)
		return
	}
	out := &passing{outer: v.w, refused: recorder{header: http.Header{}, outer: v.w, status: http.StatusOK}}
	v.page.api.ServeHTTP(out, r)
	if out.passes {
		return
	}
	if out.refused.header.Get("Content-Type") != httpjson.ProblemType {
		v.refuse(problem(http.StatusBadGateway, "the API answers %d, and with no file", out.refused.status))
		return
	}
	v.refuse(out.refused.problem())
}

// passing passes a file on, and keeps what is none.
type passing struct {
	outer   http.ResponseWriter
	refused recorder
	passes  bool
	told    bool // the status was
}

func (p *passing) Header() http.Header { return p.refused.header }

// Unwrap is for http.ResponseController.
func (p *passing) Unwrap() http.ResponseWriter { return p.outer }

// fileHeaders are those that a file is sent with, by which no browser shows it as a page.
var fileHeaders = []string{"Content-Type", "Content-Length", "Content-Disposition", "Content-Security-Policy"}

func (p *passing) WriteHeader(status int) {
	if p.told {
		return
	}
	p.told = true
	p.refused.status = status
	if p.passes = status == http.StatusOK && p.refused.header.Get("Content-Disposition") != ""; !p.passes {
		return
	}
	for _, name := range fileHeaders {
		p.outer.Header().Set(name, p.refused.header.Get(name))
	}
	p.outer.WriteHeader(status)
}

func (p *passing) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if p.passes {
		return p.outer.Write(b)
	}
	return p.refused.Write(b)
}

// downloadLink is the address of a message's value as a file.
func downloadLink(m apiview.Message) string {
	return link("download", "status", m.Status, "handler", m.Handler, "tenant", m.Tenant, "id", m.ID)
}
