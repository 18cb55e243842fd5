package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/metric"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/idempotency/idempotencytest"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
)

// made notes the instruments that are made.
type made struct {
	metric.MeterProvider
	mu    sync.Mutex
	names map[string]bool
}

func (m *made) Meter(name string, options ...metric.MeterOption) metric.Meter {
	return meter{m.MeterProvider.Meter(name, options...), m}
}

func (m *made) note(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[name] = true
}

// during runs f beside something that lasts until its context ends.
func during(run func(context.Context), f func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	f()
	cancel()
	<-done
}

type meter struct {
	metric.Meter
	made *made
}

func (m meter) Int64Counter(name string, options ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	m.made.note(name)
	return m.Meter.Int64Counter(name, options...)
}

func (m meter) Float64Histogram(name string, options ...metric.Float64HistogramOption) (
	metric.Float64Histogram, error) {
	m.made.note(name)
	return m.Meter.Float64Histogram(name, options...)
}

func (m meter) Float64ObservableGauge(name string, options ...metric.Float64ObservableGaugeOption) (
	metric.Float64ObservableGauge, error) {
	m.made.note(name)
	return m.Meter.Float64ObservableGauge(name, options...)
}

func (m meter) Float64ObservableCounter(name string, options ...metric.Float64ObservableCounterOption) (
	metric.Float64ObservableCounter, error) {
	m.made.note(name)
	return m.Meter.Float64ObservableCounter(name, options...)
}

// program is one with a handler of its own, and what is around it in `firstseen run`: on an embedded broker and a real
// Postgres.
type program struct {
	*Telemetry
	made  *made
	store *dedup.Store
}

const topic, group = "orders", "billing"

// failing handles all messages but those whose value says otherwise: "once" fails the first time, "never" for good.
func failing() handlers.BatchHandler {
	var failed sync.Map
	return handlers.Each(handlers.HandlerFunc(func(_ context.Context, _ pgx.Tx, m dedup.Message) error {
		switch string(m.Value) {
		case "never":
			return handlers.Permanent(errors.New("told to"))
		case "once":
			if _, again := failed.LoadOrStore(m.ID, true); !again {
				return errors.New("told to")
			}
		}
		return nil
	}))
}

// run has messages consumed until done says so, and gives what is scraped then.
func run(t *testing.T, records []*kgo.Record, done func(handlers.Totals) bool) (*program, scraped) {
	addr := consumertest.NewFake(t).Addr
	consumertest.CreateTopic(t, addr, topic, 2)
	consumertest.Produce(t, addr, records...)
	started, _ := begin(t)
	t.Cleanup(started.Stop)
	p := &program{Telemetry: started, made: &made{MeterProvider: started.MeterProvider, names: map[string]bool{}}}
	var err error
	db := deduptest.New(t)
	p.store, err = dedup.Open(context.Background(), db.Pool, dedup.Config{Inbox: group})
	require.NoError(t, err)
	var registry handlers.Registry
	require.NoError(t, registry.Add(handlers.Registration{Name: "book", Topics: []string{topic}, Handler: failing(),
		Retry: handlers.Retry{Base: time.Millisecond, Cap: time.Millisecond}}))
	quiet := slog.New(slog.DiscardHandler)
	processor, err := handlers.NewProcessor(handlers.Config{Store: p.store, Handlers: &registry, Logger: quiet,
		MeterProvider: p.made,
		LanePoll:      5 * time.Millisecond})
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Connection: consumer.Connection{Brokers: []string{addr}}, Group: group,
		Logger: quiet, MeterProvider: p.made,
		CommitInterval: 50 * time.Millisecond, FetchWait: 50 * time.Millisecond}, processor)
	require.NoError(t, err)
	around, err := service.New(service.Config{Group: group, Pool: db.Pool, Version: "v1.2.3", Revision: "abc",
		Settings: service.Settings{Capacity: 1 << 40}, Poll: 50 * time.Millisecond, Logger: quiet, MeterProvider: p.made})
	require.NoError(t, err)
	defer around.Start(t.Context())()
	parts := service.PartsOf(c, processor)
	parts.Relayed = relayed(t, db)
	around.Attach(parts)
	sendTwice(t, p.made)
	postAsNobody(t, processor, p.made)
	var s scraped
	during(func(ctx context.Context) { _ = c.Run(ctx) }, func() {
		require.Eventually(t, func() bool { return done(processor.Totals()) }, 3*time.Minute, 10*time.Millisecond)
		require.Eventually(t, func() bool {
			s = p.scraped()
			dead := float64(processor.Totals().Dead)
			return s.sum("firstseen_dead_letters_unresolved") == dead && s.sum("firstseen_backlog") == 0 &&
				s.sum("firstseen_table_rows") > 0 && s.sum("firstseen_lag") == 0 &&
				s.sum("firstseen_outbox_backlog") > 0
		}, 3*time.Minute, 10*time.Millisecond)
	})
	return p, s
}

// sendTwice has a request with a key answered, and its second try.
func sendTwice(t *testing.T, to metric.MeterProvider) {
	m, err := idempotency.Claimed(&idempotencytest.Memory{}, idempotency.Config{Caller: idempotency.OneCaller,
		Logger: slog.New(slog.DiscardHandler), MeterProvider: to})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/orders", m.Handler(http.NotFoundHandler()))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set(idempotency.Header, "k")
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// postAsNobody has a request to the ingress refused.
func postAsNobody(t *testing.T, p *handlers.Processor, to metric.MeterProvider) {
	h, err := ingress.New(ingress.Config{Processor: p, Topics: map[string]ingress.Topic{topic: {}},
		Caller:        func(*http.Request) (ingress.Caller, error) { return ingress.Caller{}, nil },
		Logger:        slog.New(slog.DiscardHandler),
		MeterProvider: to})
	require.NoError(t, err)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/topics/orders/messages", nil))
}

// scraped are the lines of an answer.
type scraped []string

func (p *program) scraped() scraped { return strings.Split(p.scrape(), "\n") }

// sum adds up a metric's values whose labels contain all of these.
func (s scraped) sum(name string, labels ...string) (sum float64) {
	for _, line := range s {
		if rest, ok := strings.CutPrefix(line, name); !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			value, _ := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			sum += value
		}
	}
	return sum
}

func TestScrapeTellsWhatHappened(t *testing.T) {
	const good, copies, once, never, nameless = 300, 40, 12, 5, 3
	var rs []*kgo.Record
	add := func(n int, value string, id func() string) {
		for range n {
			r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, len(rs)), Value: []byte(value)}
			if id != nil {
				r.Headers = []kgo.RecordHeader{{Key: "message-id", Value: []byte(id())}}
			}
			rs = append(rs, r)
		}
	}
	add(good, "fine", uuid.NewString)
	for i := range copies {
		rs = append(rs, &kgo.Record{Topic: topic, Key: rs[i].Key, Value: rs[i].Value, Headers: rs[i].Headers})
	}
	add(once, "once", uuid.NewString)
	add(never, "never", uuid.NewString)
	add(nameless, "fine", nil)
	p, s := run(t, rs, func(now handlers.Totals) bool {
		return now.Handled == good+once && now.Dead == never+nameless && now.Duplicates == copies
	})
	for metric, want := range map[string]float64{
		`firstseen_build_info version="v1.2.3" revision="abc" goversion="go`:                                                   1,
		`messaging_client_consumed_messages_total messaging_destination_name="orders" messaging_consumer_group_name="billing"`: float64(len(rs)),
		`firstseen_batch_size_sum`: float64(len(rs)),
		`firstseen_messages_total firstseen_handler="book" firstseen_outcome="new"`: good,
		`firstseen_messages_total firstseen_outcome="duplicate"`:                    copies,
		`firstseen_messages_total firstseen_outcome="parked"`:                       once,
		`firstseen_messages_total firstseen_outcome="dead"`:                         never + nameless,
		`firstseen_messages_total firstseen_outcome="conflict"`:                     0,
		`firstseen_messages_total`:                                                  float64(len(rs)),
		`firstseen_lane_messages_total firstseen_outcome="handled"`:                 once,
		`firstseen_handler_failures_total firstseen_reason="failed"`:                once,
		`firstseen_handler_failures_total firstseen_reason="permanent"`:             never,
		`firstseen_dead_letters_total firstseen_reason="permanent"`:                 never,
		`firstseen_dead_letters_total firstseen_reason="missing_id"`:                nameless,
		`firstseen_dead_letters_unresolved firstseen_handler="book"`:                never + nameless,
		`firstseen_backlog`:                                    0,
		`firstseen_backlog_age_seconds`:                        0,
		`firstseen_rebalances_total`:                           1,
		`firstseen_fences_total`:                               0,
		`firstseen_batch_failures_total`:                       0,
		`firstseen_partitions_assigned`:                        2,
		`firstseen_partitions_held`:                            0,
		`firstseen_lag`:                                        0,
		`firstseen_consumer_state`:                             1,
		`firstseen_consumer_state firstseen_state="consuming"`: 1,
		`firstseen_buffer_limit_bytes`:                         consumer.DefaultBufferBytes,
		`firstseen_idempotency_requests_total http_route="/orders" firstseen_outcome="miss"`:               1,
		`firstseen_idempotency_requests_total http_route="/orders" firstseen_outcome="hit"`:                1,
		`firstseen_ingress_requests_total http_response_status_code="401" firstseen_reason="unauthorized"`: 1,

		`firstseen_outbox_backlog firstseen_state="pending"`:                         4,
		`firstseen_outbox_backlog messaging_destination_name="later"`:                2,
		`firstseen_outbox_backlog messaging_destination_name="sick"`:                 3,
		`firstseen_outbox_backlog firstseen_state="failed"`:                          1,
		`firstseen_outbox_delayed`:                                                   1,
		`firstseen_outbox_dead_letters_unresolved messaging_destination_name="dead"`: 2,
		`firstseen_outbox_dead_letters_unresolved`:                                   2,
		`firstseen_outbox_failure_ratio`:                                             0.3,
		`firstseen_outbox_backlog_age_seconds messaging_destination_name="sent"`:     0,
	} {
		name, labels, _ := strings.Cut(metric, " ")
		require.InDelta(t, want, s.sum(name, strings.Fields(labels)...), 0, metric)
	}
	require.InDelta(t, float64(once+never)/float64(once+never+good+once), s.sum("firstseen_failure_ratio"), 1e-9)
	require.Positive(t, s.sum("firstseen_throughput_per_second"))
	require.Positive(t, s.sum("firstseen_outbox_throughput_per_second"))
	require.InDelta(t, time.Hour.Seconds(), s.sum("firstseen_outbox_backlog_age_seconds", `="later"`), 60)
	require.Positive(t, s.sum("firstseen_table_size_bytes", `firstseen_table="message_dedup"`))
	require.Positive(t, s.sum("firstseen_disk_usage_bytes"))
	require.Positive(t, s.sum("firstseen_handler_duration_seconds_count", `firstseen_outcome="failed"`))
	requireCatalogued(t, p, s)
}

// An alert that no program with handlers of its own can set off is none for it, and one for something that is absent
// would always be set off.
func TestAlertsAreAboutWhatAProgramWithHandlersOfItsOwnShows(t *testing.T) {
	p, s := run(t, []*kgo.Record{{Topic: topic, Value: []byte("fine")}}, func(now handlers.Totals) bool {
		return now.Dead == 1 // it has no ID
	})
	metrics, labels := vocabulary(t)
	for _, rule := range alerts(t) {
		for _, name := range requireKnown(t, rule.Expr, metrics, labels) {
			i := slices.IndexFunc(catalogue(t), func(c shown) bool { return strings.HasPrefix(name, c.name) })
			require.True(t, p.made.names[catalogue(t)[i].Name], "%s asks for %s", rule.Alert, name)
			if strings.Contains(rule.Expr, "absent(") {
				require.Positive(t, s.sum(name), "%s is set off", rule.Alert)
			}
		}
	}
}

// requireCatalogued checks that all instruments were made and no other, and that nothing has a label that the
// catalogue does not name.
func requireCatalogued(t *testing.T, p *program, s scraped) {
	want := map[string]bool{}
	labels := map[string][]string{}
	for _, i := range catalogue(t) {
		want[i.Name] = true
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			labels[i.name+suffix] = i.labels
		}
	}
	require.Equal(t, want, p.made.names)
	label := regexp.MustCompile(`(\w+)="`)
	for _, line := range s {
		name, _, _ := strings.Cut(line, "{")
		if allowed, ok := labels[name]; ok {
			for _, l := range label.FindAllStringSubmatch(line, -1) {
				require.Contains(t, append(allowed, "le"), l[1], line)
			}
		}
	}
	require.Contains(t, p.made.names, instruments.Lag.Name)
}
