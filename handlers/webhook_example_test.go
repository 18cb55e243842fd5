package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

func ExampleWebhook() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key"))
		fmt.Println("signed:", r.Header.Get("Webhook-Signature") != "")
		http.Error(w, "gone fishing", http.StatusServiceUnavailable)
	}))
	defer receiver.Close()

	hook, err := handlers.NewWebhook(handlers.WebhookConfig{
		URL:          receiver.URL + "/orders",
		Secrets:      []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		AllowPrivate: true, // the receiver is on this machine
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hook.CloseIdleConnections()

	var registry handlers.Registry
	err = registry.Add(handlers.Registration{Name: "notify", Topics: []string{"orders"},
		Detached: hook, Concurrency: 16})
	fmt.Println(registry.Topics(), err)

	// This is what the lane workers do with each message of the topic, until it succeeds.
	err = hook.Deliver(context.Background(), dedup.Message{
		ID: uuid.MustParse("0198f000-0000-7000-8000-000000000001"), Topic: "orders", Value: []byte(`{"total": 12}`)})
	var answer *handlers.StatusError
	if errors.As(err, &answer) {
		fmt.Println(answer.Code, answer.Snippet)
	}
	// Output:
	// [orders] <nil>
	// POST application/json 0198f000-0000-7000-8000-000000000001
	// signed: true
	// 503 gone fishing
}
