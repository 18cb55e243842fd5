package admin

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/handlers/apipage"
)

// API is the admin API as an http.Handler: all below /api/v1, for a server of yours. Who may use it say the service's
// settings, whichever server has it; certificates have to be verified by the server's TLS. Each call takes one of the
// pool's connections at most, one call that reads and one that changes at a time. It is safe for concurrent use.
type API struct {
	service *service.Service
	log     *slog.Logger
	routes  http.Handler

	openapi    []byte
	operations byPath
	failures   *httpjson.Failures
	admitted   httpjson.Bucket // requests of clients that are known
	visits     httpjson.Bucket // of the operator's page, by such clients: a script must not stop a person, nor the reverse
	refused    httpjson.Bucket // and requests of others, which must not use up the first
	reads      chan struct{}
	changes    chan struct{}
	answers    chan struct{} // of reads, that are in memory: who reads slowly holds one
	downloads  chan struct{} // of these, those that are sent in pieces
}

// NewAPI makes the API of a service.
func NewAPI(s *service.Service) (*API, error) { return newAPI(s, s.Config().Logger) }

func newAPI(s *service.Service, log *slog.Logger) (a *API, err error) {
	a = &API{service: s, log: log, failures: httpjson.NewFailures(log), operations: byPath{},
		reads: make(chan struct{}, 1), changes: make(chan struct{}, 1), answers: make(chan struct{}, maxAnswers),
		downloads: make(chan struct{}, maxDownloads)}
	if a.openapi, err = json.MarshalIndent(describe(a.operations, s.Config().Version), "", "  "); err != nil {
		return nil, fmt.Errorf("describe the admin API: %w", err)
	}
	a.routes = a.survive(a.mux())
	return a, nil
}

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.routes.ServeHTTP(w, r) }

// mux has the operations, the page, and what is said of all other paths.
func (a *API) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for path, m := range a.operations {
		calls := httpjson.Methods{}
		for method, serve := range m {
			calls[method] = a.serve(serve)
		}
		mux.Handle(path, a.admit(calls))
	}
	for _, path := range []string{prefix, prefix + "/"} {
		mux.Handle(path, a.admit(http.HandlerFunc(notFound)))
	}
	mux.Handle(pagePath, httpjson.Methods{http.MethodGet: a.page})
	mux.HandleFunc("/", notFound)
	return mux
}

// byPath takes huma's operations in, by their paths.
type byPath map[string]httpjson.Methods

// HandleFunc is huma's, for a pattern METHOD PATH.
func (b byPath) HandleFunc(pattern string, serve func(http.ResponseWriter, *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	if b[path] == nil {
		b[path] = httpjson.Methods{}
	}
	b[path][method] = serve
}

// ServeHTTP is required by huma, which never calls it.
func (b byPath) ServeHTTP(w http.ResponseWriter, r *http.Request) { notFound(w, r) }

func notFound(w http.ResponseWriter, _ *http.Request) {
	httpjson.Errorf(http.StatusNotFound, "there is nothing at this path; /api/v1/openapi.json lists what the API "+
		"has, /api/v1/try is a page to try it, and /livez, /readyz, /healthz and /metrics are beside it").Write(w)
}

// page has a person try the API in a browser. It is the same everywhere and shows nothing by itself, so it is there
// for who has yet to show a token, which a browser can't before it has the page; who is refused for where he asks from
// does not get it.
func (a *API) page(w http.ResponseWriter, r *http.Request) {
	_, refused := identify(r, a.service.Settings().Access)
	if refused != nil && refused.Status != http.StatusUnauthorized {
		refused.Write(w)
		return
	}
	apipage.Handler().ServeHTTP(w, r)
}
