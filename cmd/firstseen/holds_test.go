package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/doctor"
	"github.com/firstseen/firstseen/cmd/internal/telemetry"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/admin"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// codesIn gives the codes in the first column of a page's table below a heading.
func codesIn(t *testing.T, page, heading string) (codes []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs", page))
	require.NoError(t, err)
	_, part, found := strings.Cut(string(text), "\n"+heading+"\n")
	require.True(t, found, heading)
	part, _, _ = strings.Cut(part, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(part, -1) {
		codes = append(codes, row[1])
	}
	return codes
}

func TestOperationsHasEveryCodeOfAHoldAndNoOther(t *testing.T) {
	var want []string
	for _, e := range holds.Catalogue() {
		want = append(want, e.Code)
	}
	require.ElementsMatch(t, want, codesIn(t, "OPERATIONS.md", "## Held partitions"))
}

// A code that nothing enters is a promise that nobody keeps.
func TestEveryCodeOfAHoldIsEnteredSomewhere(t *testing.T) {
	names := map[string]bool{} // of the constants in the catalogue's file
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(t), "dedup", "holds", "catalogue.go"), nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, s := range d.Specs {
				names[s.(*ast.ValueSpec).Names[0].Name] = true
			}
		}
		return true
	})
	require.Len(t, names, len(holds.Catalogue()), "a constant without an entry, or the other way round")
	var code strings.Builder
	for _, dir := range []string{"handlers", "handlers/outbox", "consumer", "consumer/internal/*",
		"cmd/firstseen", "consumer/retention"} {
		files, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
		require.NoError(t, err)
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				text, err := os.ReadFile(f)
				require.NoError(t, err)
				code.Write(text)
			}
		}
	}
	alias := regexp.MustCompile(`(?m)^\s*(Held\w+)\s*= holds\.(\w+)$`)
	text := code.String()
	for _, m := range alias.FindAllStringSubmatch(text, -1) {
		if strings.Count(text, m[1])-strings.Count(m[0], m[1]) > 0 {
			delete(names, m[2])
		}
	}
	text = alias.ReplaceAllString(text, "")
	for name := range names {
		require.Regexp(t, `\bholds\.`+name+`\b`, text, "nothing enters it")
	}
}

// waiting is a consumer with everything beside it that tells of holds.
type waiting struct {
	t         *testing.T
	shop      *shop
	log       *deduptest.Log
	processor *handlers.Processor
	consumer  *consumer.Consumer
	cfg       config.Config
	metrics   http.Handler
	server    *admin.Server
}

// newWaiting starts one, whose config has some settings more.
func newWaiting(t *testing.T, more string) *waiting {
	s := newShop(t, booking)
	w := &waiting{t: t, shop: s, log: &deduptest.Log{}}
	path := filepath.Join(t.TempDir(), "firstseen.yaml")
	require.NoError(t, os.WriteFile(path, []byte(s.config(s.db.DSN)+"http: {listen: 127.0.0.1:0}\n"+more), 0o600))
	var err error
	w.cfg, err = config.Load(path, nil)
	require.NoError(t, err)
	log := slog.New(slog.NewTextHandler(w.log, nil))
	measured, err := telemetry.Start(t.Context(), telemetry.Config{Version: "v1", Logger: log})
	require.NoError(t, err)
	t.Cleanup(measured.Stop)
	w.metrics = measured.Handler
	store, err := dedup.Open(t.Context(), s.db.Pool, w.cfg.Store())
	require.NoError(t, err)
	w.processor, err = newProcessor(t.Context(), w.cfg, s.db.Pool, store, holds.New(log), log)
	require.NoError(t, err)
	settings, err := w.cfg.Consumer(log)
	require.NoError(t, err)
	settings.MeterProvider = measured.MeterProvider // the global one is that of the test that started last
	w.consumer, err = consumer.New(settings, w.processor)
	require.NoError(t, err)
	around, err := surround(config.Fixed(w.cfg), s.db.Pool, nil, log)
	require.NoError(t, err)
	w.server, err = serve(t.Context(), w.cfg.HTTP, around, nil, log)
	require.NoError(t, err)
	t.Cleanup(w.server.Stop)
	around.Attach(service.PartsOf(w.consumer, w.processor))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.consumer.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	eventually(t, func() bool { return w.consumer.Status().State == consumer.Consuming })
	return w
}

func (w *waiting) get(path string) string {
	answer, err := http.Get("http://" + w.server.Addr().String() + path)
	require.NoError(w.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(w.t, err)
	return string(text)
}

func (w *waiting) scrape() string {
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "/metrics", nil)
	require.NoError(w.t, err)
	out := &answered{header: http.Header{}}
	w.metrics.ServeHTTP(out, r)
	return out.String()
}

// answered is an answer to a request that was made without a server.
type answered struct {
	strings.Builder
	header http.Header
}

func (a *answered) Header() http.Header { return a.header }
func (a *answered) WriteHeader(int)     {}

func (w *waiting) examined() string {
	checks, err := doctor.Select([]string{"holds"})
	require.NoError(w.t, err)
	cfg := w.cfg
	findings, err := doctor.Run(w.t.Context(),
		doctor.Case{Config: &cfg, DSN: cfg.Postgres.DSN.Reveal(), Inbox: cfg.Inbox}, checks)
	require.NoError(w.t, err)
	var out strings.Builder
	require.NoError(w.t, printFindings(&out, findings, true))
	return out.String()
}

// Whatever holds something shows in five places, with the reason and what to do, for as long as it lasts.
func TestEveryHoldIsInTheLogStatusHealthMetricsAndDoctor(t *testing.T) {
	t.Parallel()
	w := newWaiting(t, "")
	kinds := []holds.Kind{holds.PartitionKind, holds.TopicKind, holds.HandlerKind, holds.GroupKind, holds.BrokerKind,
		holds.InboxKind, holds.ReplayKind, holds.DeadTopicKind, holds.StartKind}
	places := map[string]*holds.Place{}
	for i, e := range holds.Catalogue() {
		place := w.processor.Holds().Place(kinds[i%len(kinds)], "subject-"+e.Code)
		place.WaitSince(time.Now().Add(-time.Hour), e.Code, errors.New("reason of "+e.Code))
		places[e.Code] = place
	}
	w.requireTold(places)
	for _, place := range places {
		place.End()
	}
	eventually(t, func() bool {
		return !strings.Contains(w.examined()+w.scrape()+w.get("/healthz")+w.get("/api/v1/status"), "subject-")
	})
	require.NotContains(t, w.scrape(), "firstseen_holds{")
	eventually(t, func() bool {
		return !slices.ContainsFunc(holds.Catalogue(),
			func(e holds.Entry) bool { return !w.logged("goes on again", e.Code) })
	})
}

func (w *waiting) requireTold(places map[string]*holds.Place) {
	w.t.Helper()
	eventually(w.t, func() bool { return strings.Count(w.examined(), "subject-") == len(places) })
	eventually(w.t, func() bool {
		return !slices.ContainsFunc(holds.Catalogue(), func(e holds.Entry) bool { return !w.logged("do=", e.Code) })
	})
	status, api, health, metrics, found := w.consumer.Status(), w.get("/api/v1/status"),
		w.get("/healthz"), w.scrape(), w.examined()
	require.Contains(w.t, health, `"unhealthy"`)
	for code, place := range places {
		e, h := holds.EntryOf(code), place.Hold()
		require.Contains(w.t, status.Holds, *h)
		require.Contains(w.t, api, `"name":"subject-`+code+`"`)
		require.Contains(w.t, api, `"reason":"reason of `+code+`"`)
		require.Regexp(w.t, fmt.Sprintf(`(?m)^firstseen_holds\{.*firstseen_reason="%s".*\} 1$`, code), metrics)
		require.Regexp(w.t,
			fmt.Sprintf(`(?m)^firstseen_holds_age_seconds\{.*firstseen_reason="%s".*\} 3[67]\d\d`, code), metrics)
		require.Contains(w.t, found, "subject-"+code)
		require.Contains(w.t, found, e.Do)
		if e.Decision {
			require.Contains(w.t, health, code)
		}
	}
}

func (w *waiting) logged(text, code string) bool {
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, text) && strings.Contains(line, "hold="+code+" ") {
			return true
		}
	}
	return false
}

// lockedByHand has somebody else, who may work on the positions, lock them until the returned function is called.
func (s *shop) lockedByHand() (unlock func()) {
	s.t.Helper()
	role := "repair_" + s.db.Pool.Config().ConnConfig.Database
	s.exec(`create role ` + role + ` login superuser`)
	conn, err := pgx.Connect(s.t.Context(), deduptest.As(s.t, s.db.DSN, role))
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_ = conn.Close(context.Background())
		_, _ = s.db.Pool.Exec(context.Background(), `drop role `+role)
	})
	_, err = conn.Exec(s.t.Context(), `begin; update firstseen.positions set owner = 'me'`)
	require.NoError(s.t, err)
	return func() {
		_, err := conn.Exec(s.t.Context(), `rollback`)
		require.NoError(s.t, err, "the session was left alone")
	}
}

// Not one that a test enters: from Postgres' lock to all five places, and back.
func TestAPositionThatSomebodyHasLockedIsToldWithWhoItIs(t *testing.T) {
	t.Parallel()
	w := newWaiting(t, "timeouts: {postgres: 2s}\n")
	w.shop.produce(0, 10)
	eventually(t, func() bool { return w.shop.booked() == 10 })
	unlock := w.shop.lockedByHand()
	w.shop.produce(10, 20)
	const by = "of repair_"
	eventually(t, func() bool {
		return slices.ContainsFunc(w.consumer.Status().Partitions,
			func(p consumer.PartitionStatus) bool { return p.Held == consumer.HeldLocked })
	})
	eventually(t, func() bool { return w.logged(by, holds.Locked) })
	eventually(t, func() bool {
		found := w.examined()
		return strings.Contains(found, holds.Locked) && strings.Contains(found, by)
	})
	api := w.get("/api/v1/status")
	require.Contains(t, api, `"held":"`+holds.Locked+`"`)
	require.Contains(t, api, by)
	require.Regexp(t, `held: partition .*\(`+holds.Locked+`\)`, w.get("/healthz"))
	require.Regexp(t, `(?m)^firstseen_holds\{.*firstseen_reason="`+holds.Locked+`".*\} [12]$`, w.scrape())
	unlock()
	eventually(t, func() bool { return w.shop.booked() == 20 })
	eventually(t, func() bool { return w.logged("goes on again", holds.Locked) })
	eventually(t, func() bool { return !strings.Contains(w.examined(), holds.Locked) })
}
