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
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/idempotency/idempotencytest"
	"github.com/firstseen/firstseen/dedup/instruments"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
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

// program is what `firstseen run` measures: a consumer with one handler, on an embedded broker and a real Postgres.
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
	p.store, err = dedup.Open(context.Background(), deduptest.New(t).Pool, dedup.Config{Inbox: group})
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
	gauges := NewGauges(GaugesConfig{Inbox: operate.Of(p.store),
		Window:   NewWindow(func() time.Duration { return time.Minute }, processor.Totals),
		Capacity: func() int64 { return 1 << 40 }, MeterProvider: p.made, Logger: quiet})
	gauges.backlog.every = 50 * time.Millisecond
	sendTwice(t, p.made)
	var s scraped
	during(gauges.Run, func() {
		during(func(ctx context.Context) { _ = c.Run(ctx) }, func() {
			require.Eventually(t, func() bool { return done(processor.Totals()) }, 30*time.Second, 10*time.Millisecond)
			require.Eventually(t, func() bool {
				s = p.scraped()
				dead := float64(processor.Totals().Dead)
				return s.sum("firstseen_dead_letters_unresolved") == dead && s.sum("firstseen_backlog") == 0 &&
					s.sum("firstseen_table_rows") > 0 && s.sum("firstseen_lag") == 0
			}, 30*time.Second, 10*time.Millisecond)
		})
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
		`firstseen_idempotency_requests_total http_route="/orders" firstseen_outcome="miss"`: 1,
		`firstseen_idempotency_requests_total http_route="/orders" firstseen_outcome="hit"`:  1,
	} {
		name, labels, _ := strings.Cut(metric, " ")
		require.InDelta(t, want, s.sum(name, strings.Fields(labels)...), 0, metric)
	}
	require.InDelta(t, float64(once+never)/float64(once+never+good+once), s.sum("firstseen_failure_ratio"), 1e-9)
	require.Positive(t, s.sum("firstseen_throughput_per_second"))
	require.Positive(t, s.sum("firstseen_table_size_bytes", `firstseen_table="message_dedup"`))
	require.Positive(t, s.sum("firstseen_disk_usage_bytes"))
	require.Positive(t, s.sum("firstseen_handler_duration_seconds_count", `firstseen_outcome="failed"`))
	requireCatalogued(t, p, s)
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
