package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/twmb/franz-go/pkg/kgo"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/admin"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/consumer/retention"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

// book is what this program is for.
func book(context.Context, pgx.Tx, dedup.Message) error { return nil }

// newProcessor opens the inbox, for which Postgres is waited for, and has the program's handlers.
func newProcessor(ctx context.Context, pool *pgxpool.Pool) (*handlers.Processor, error) {
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "billing"})
	if err != nil {
		return nil, err
	}
	var registry handlers.Registry
	if err := registry.Register("book", handlers.Each(handlers.HandlerFunc(book)), "payments"); err != nil {
		return nil, err
	}
	return handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
}

// run consumes payments until ctx ends, with all that is around a consumer. The server answers from the first moment
// on: that it is not ready, until it is.
func run(ctx context.Context, around *service.Service, pool *pgxpool.Pool, kafka consumer.Connection,
	mux *http.ServeMux) error {
	defer around.Start(ctx)() // heartbeats, metrics and retention
	api, err := admin.NewAPI(around)
	if err != nil {
		return err
	}
	mux.Handle("/api/v1/", api)
	mux.Handle("/", around.Probes())
	processor, err := newProcessor(ctx, pool)
	if err != nil {
		return err
	}
	c, err := consumer.New(consumer.Config{Connection: kafka, Group: "billing"}, processor)
	if err != nil {
		return err
	}
	around.Attach(service.PartsOf(c, processor))
	return c.Run(ctx)
}

// program is run on servers of its own, with a topic that has one payment.
type program struct {
	ctx  context.Context
	end  func()
	pool *pgxpool.Pool
	to   consumer.Connection
	url  string

	around *service.Service
}

func start(settings service.Settings) *program {
	t := new(deduptest.Example)
	broker := consumertest.NewFake(t).Addr // a program connects to its own
	consumertest.CreateTopic(t, broker, "payments", 1)
	consumertest.Produce(t, broker, &kgo.Record{Topic: "payments", Headers: []kgo.RecordHeader{{Key: "message-id",
		Value: []byte("payment-4711")}}})
	p := &program{pool: deduptest.New(t).Pool, to: consumer.Connection{Brokers: []string{broker}}}
	var err error
	p.around, err = service.New(service.Config{Group: "billing", Pool: p.pool, Settings: settings})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	p.url = server.URL
	var cancel context.CancelFunc
	p.ctx, cancel = context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(p.ctx, p.around, p.pool, p.to, mux) }()
	p.end = func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Println(err)
		}
		server.Close()
		t.End()
	}
	consumertest.AwaitCommitted(t, broker, "billing", "payments", 0, 1)
	return p
}

// get gives an answer's status, and one of its fields.
func (p *program) get(path, field string, headers ...string) (status int, value any) {
	r, _ := http.NewRequestWithContext(p.ctx, http.MethodGet, p.url+path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	fields := map[string]any{}
	_ = json.NewDecoder(answer.Body).Decode(&fields)
	return answer.StatusCode, fields[field]
}

// What a load balancer and a supervisor ask, and health with its reasons.
func ExampleService_Probes() {
	p := start(service.Settings{})
	defer p.end()
	fmt.Println(p.get("/livez", "status"))
	fmt.Println(p.get("/readyz", "reason"))
	fmt.Println(p.get("/healthz", "status"))
	// Output:
	// 200 ok
	// 200 the program is consuming
	// 200 ok
}

// The admin API is closed to other hosts, unless there is a token; then it is for whoever shows it.
func ExampleService_adminAPI() {
	p := start(service.Settings{Access: service.Access{ReadToken: "read-0123456789abcdef"}})
	defer p.end()
	fmt.Println(p.get("/api/v1/status", "status"))
	fmt.Println(p.get("/api/v1/status", "group", "Authorization", "Bearer read-0123456789abcdef"))
	// Output:
	// 401 401
	// 200 billing
}

// Metrics are OpenTelemetry's: a program shows them as it does its own, here to Prometheus.
func ExampleService_metrics() {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		panic(err)
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)) // otel.SetMeterProvider(meters) has all use it
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	t := new(deduptest.Example)
	defer t.End()
	around, err := service.New(service.Config{Group: "billing", Pool: deduptest.New(t).Pool, Version: "v1.2.3",
		MeterProvider: meters})
	if err != nil {
		panic(err)
	}
	defer around.Start(context.Background())()
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		answer := httptest.NewRecorder()
		metrics.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		text, _ := io.ReadAll(answer.Body)
		if strings.Contains(string(text), "firstseen_build_info") {
			fmt.Println("firstseen_build_info is there, before Postgres or Kafka is reached")
			break
		}
	}
	// Output:
	// firstseen_build_info is there, before Postgres or Kafka is reached
}

// Settings change while the program runs, without a signal: a file that is watched, a flag of a service, a button.
func ExampleService_Apply() {
	p := start(service.Settings{})
	defer p.end()
	next := p.around.Settings()
	next.Health.Degraded.DeadLetters = 100
	next.Access.WriteToken = "short"
	fmt.Println(p.around.Apply(next))
	next.Access.WriteToken = "write-0123456789abcdef"
	fmt.Println(p.around.Apply(next), p.around.Settings().Health.Degraded.DeadLetters)
	// Output:
	// apply settings: access: a token has less than 16 characters
	// <nil> 100
}

// Retention deletes what is older than its policy says, in the background, as long as no topic can bring it again: a
// topic that keeps messages for longer than their IDs would be kept stops it.
func ExampleService_retention() {
	p := start(service.Settings{Retention: retention.Policy{Interval: 10 * time.Millisecond}})
	defer p.end()
	_, err := p.pool.Exec(p.ctx, `update firstseen.message_dedup set first_seen_at = now() - interval '31 days'`)
	if err != nil {
		panic(err)
	}
	settings := p.around.Settings()
	settings.Retention.IDs = 30 * 24 * time.Hour
	if err := p.around.Apply(settings); err != nil {
		panic(err)
	}
	left := 1
	for deadline := time.Now().Add(3 * time.Minute); left > 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err := p.pool.QueryRow(p.ctx, `select count(*) from firstseen.message_dedup`).Scan(&left); err != nil {
			panic(err)
		}
	}
	fmt.Println("IDs left:", left)
	// Output:
	// IDs left: 0
}

// A command of the program's own reads a topic again, and gives its handlers what they have not seen. It is interrupted
// by its context, and then goes on where it was when it is called again.
func ExampleService_replay() {
	p := start(service.Settings{})
	defer p.end()
	processor, err := newProcessor(p.ctx, p.pool)
	if err != nil {
		panic(err)
	}

	reader, err := replay.NewReader(replay.ReaderConfig{Connection: p.to})
	if err != nil {
		panic(err)
	}
	defer reader.Close()
	result, err := reader.Replay(p.ctx, processor, replay.Config{Topic: consumer.Topic{Name: "payments"}, Group: "billing"})

	fmt.Println(result.Read, "read,", result.Duplicates, "seen before,", result.New, "new", err)
	// Output:
	// 1 read, 1 seen before, 0 new <nil>
}
