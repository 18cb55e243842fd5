package ingress_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
	"github.com/firstseen/firstseen/migrations"
)

// A client posts an order, does not hear the answer, and posts it again.
func ExampleNew() {
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
	if err := takeIn(ctx, server.DSN("postgres")); err != nil {
		fmt.Println(err)
	}
	// Output:
	// booked: {"order":17}
	// 201 Created
	// 200 OK
}

func takeIn(ctx context.Context, dsn string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "billing"})
	if err != nil {
		return err
	}
	var registry handlers.Registry
	book := handlers.HandlerFunc(func(_ context.Context, _ pgx.Tx, m dedup.Message) error {
		fmt.Printf("booked: %s\n", m.Value)
		return nil
	})
	if err := registry.Register("book", handlers.Each(book), "orders"); err != nil {
		return err
	}
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	if err != nil {
		return err
	}
	h, err := ingress.New(ingress.Config{
		Processor: processor,
		Topics:    map[string]ingress.Topic{"orders": {}},
		Caller:    func(*http.Request) (ingress.Caller, error) { return ingress.Caller{Name: "shop"}, nil },
	})
	if err != nil {
		return err
	}
	service := httptest.NewServer(h)
	defer service.Close()
	for range 2 {
		if err := postOrder(ctx, service.URL); err != nil {
			return err
		}
	}
	return nil
}

func postOrder(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/topics/orders/messages",
		strings.NewReader(`{"content":{"order":17}}`))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "order-17")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	fmt.Println(response.Status)
	return nil
}
