package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/idempotency/idempotencytest"
	"github.com/firstseen/firstseen/migrations"
)

// An order is inserted by the transaction that keeps its key and its answer. The first answer gets lost on its way to
// the client, who sends the order again.
func ExampleInTransaction() {
	ctx := context.Background()
	server, err := pgserver.Start(ctx, pgserver.Config{}) // your Postgres
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if _, err := migrations.Up(ctx, server.DSN("postgres"), migrations.Config{}); err != nil {
		fmt.Println(err)
		return
	}
	if err := takeOrders(ctx, server.DSN("postgres")); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 201 {"order":1}
	// orders: 1
}

// createOrder works in its request's transaction, and commits nothing.
func createOrder(w http.ResponseWriter, r *http.Request) {
	var id int64
	err := idempotency.Tx(r.Context()).QueryRow(r.Context(),
		`insert into orders default values returning id`).Scan(&id)
	if err != nil {
		http.Error(w, "no order", http.StatusInternalServerError) // nothing is kept
		return
	}
	w.Header().Set("Location", fmt.Sprint("/orders/", id))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"order":%d}`, id)
}

// routes are those of a service whose clients are one: see [idempotency.Config].Caller.
func routes(ctx context.Context, pool *pgxpool.Pool) (http.Handler, error) {
	store, err := idempotency.Open(ctx, pool, idempotency.PostgresConfig{})
	if err != nil {
		return nil, err
	}
	once, err := idempotency.InTransaction(store, idempotency.Config{Caller: idempotency.OneCaller})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", once.Handler(http.HandlerFunc(createOrder)))
	return mux, nil
}

func takeOrders(ctx context.Context, dsn string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx,
		`create table orders (id bigint generated always as identity primary key)`); err != nil {
		return err
	}
	orders, err := routes(ctx, pool)
	if err != nil {
		return err
	}
	service := httptest.NewServer(losingFirst(orders))
	defer service.Close()
	status, answer, err := postOnce(ctx, service.Client(), service.URL+"/orders", []byte(`{"item":"book"}`))
	if err != nil {
		return err
	}
	fmt.Println(status, string(answer))
	var n int
	err = pool.QueryRow(ctx, `select count(*) from orders`).Scan(&n)
	fmt.Println("orders:", n)
	return err
}

// losingFirst lets the first request be handled, and its answer get lost.
func losingFirst(next http.Handler) http.Handler {
	var requests atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// A card is charged by somebody else, who is handed a key that is the same at each try: should this process die, the
// handler runs again, and the charge is the same one.
func ExampleClaimed() {
	store := &idempotencytest.Memory{} // for tests: idempotency.Open gives one that outlives the process
	once, err := idempotency.Claimed(store, idempotency.Config{Caller: idempotency.OneCaller})
	if err != nil {
		fmt.Println(err)
		return
	}
	service := httptest.NewServer(losingFirst(once.Handler(http.HandlerFunc(chargeCard))))
	defer service.Close()
	status, answer, err := postOnce(context.Background(), service.Client(),
		service.URL+"/charges", []byte(`{"cents":1500}`))
	fmt.Println(status, string(answer), err)
	// Output:
	// charged with a key of 64 digits
	// 201 {"charge":"c1"} <nil>
}

// chargeCard hands a key on to whoever it asks for the effect.
func chargeCard(w http.ResponseWriter, r *http.Request) {
	fmt.Println("charged with a key of", len(idempotency.Key(r.Context())), "digits")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"charge":"c1"}`)
}
