// Command orders takes orders by HTTP and tells Kafka of each. An order that is sent again, because its answer was lost, is
// the same order: the row, the answer that is kept for its Idempotency-Key, and the message for Kafka are one transaction.
//
//	DATABASE_URL=postgres://… KAFKA_BROKERS=localhost:9092 go run ./docs/examples/orders
//	curl --header 'Idempotency-Key: 5f0c' --data '{"item": "book"}' localhost:8081/orders
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/sender"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/handlers/outbox"
	"github.com/firstseen/firstseen/migrations"
)

const tables = `create table if not exists orders (id bigint generated always as identity primary key, item text not null)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "localhost:8081"))
	if err == nil {
		err = run(ctx, listener, os.Getenv("DATABASE_URL"), strings.Split(os.Getenv("KAFKA_BROKERS"), ","))
	}
	if err != nil {
		slog.Error("orders", "error", err)
		os.Exit(1)
	}
}

// run serves, and sends what the outbox has, until ctx ends.
func run(ctx context.Context, listener net.Listener, dsn string, brokers []string) error {
	if _, err := migrations.Up(ctx, dsn, migrations.Config{}); err != nil {
		return err
	}
	pool, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	kafka, err := sender.New(consumer.Connection{Brokers: brokers})
	if err != nil {
		return err
	}
	defer kafka.Close()
	relay, err := outbox.New(ctx, outbox.Config{Pool: pool,
		Destinations: []outbox.Destination{{Name: "kafka", Topics: []string{"orders"}, Sender: kafka}}})
	if err != nil {
		return err
	}
	answers, err := idempotency.Open(ctx, pool, idempotency.PostgresConfig{})
	if err != nil {
		return err
	}
	routes, err := newRoutes(answers, relay)
	if err != nil {
		return err
	}
	var beside sync.WaitGroup
	beside.Go(func() { relay.Run(ctx) })
	beside.Go(func() { idempotency.RunSweep(ctx, answers, time.Hour, slog.Default()) })
	defer beside.Wait()
	return serve(ctx, listener, routes)
}

func open(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	conf, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	dedup.PreparePool(conf, 0)
	conf.MaxConns = 20 // for requests and the relay
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, tables)
	return pool, err
}

func newRoutes(answers *idempotency.Postgres, relay *outbox.Relay) (http.Handler, error) {
	once, err := idempotency.InTransaction(answers, idempotency.Config{Caller: idempotency.OneCaller, Required: true})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", once.Handler(http.HandlerFunc(createOrder)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r)
		relay.Wake() // there may be something to send
	}), nil
}

type order struct {
	ID   int64  `json:"id"`
	Item string `json:"item"`
}

// createOrder works in its request's transaction, and commits nothing. What is answered 500 is not kept.
func createOrder(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Item == "" {
		http.Error(w, `send {"item": "…"}`, http.StatusBadRequest)
		return
	}
	message, err := place(r.Context(), idempotency.Tx(r.Context()), &o)
	if err != nil {
		slog.Error("place an order", "error", err)
		http.Error(w, "no order", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Location", fmt.Sprint("/orders/", o.ID))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(message)
}

// place inserts the order, and has Kafka told of it once that has committed.
func place(ctx context.Context, tx pgx.Tx, o *order) (message []byte, err error) {
	if err := tx.QueryRow(ctx, `insert into orders (item) values ($1) returning id`, o.Item).Scan(&o.ID); err != nil {
		return nil, err
	}
	if message, err = json.Marshal(o); err != nil {
		return nil, err
	}
	var writer outbox.Writer
	_, err = writer.Add(ctx, tx, outbox.Message{Topic: "orders", Key: fmt.Append(nil, o.ID), Value: message})
	return message, err
}

func serve(ctx context.Context, listener net.Listener, routes http.Handler) error {
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ending)
	})()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
