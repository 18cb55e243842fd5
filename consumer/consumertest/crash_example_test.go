package consumertest_test

import (
	"context"
	"os"
	"testing"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/crashtest"
)

// The consumer of a program, as its main starts it.
func consume(ctx context.Context, dsn string, brokers []string, clientID string) error { return nil }

// A test of that program.
func ExampleCrashTest() {
	test := func(t *testing.T) {
		sample, err := os.Open("testdata/payments.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		defer sample.Close()
		messages, err := crashtest.ReadMessages(sample, "payments")
		if err != nil {
			t.Fatal(err)
		}
		consumertest.CrashTest(t, crashtest.Config{
			Messages: messages,
			Schema:   `create table accounts (name text primary key, cents bigint not null)`,
		}, func(ctx context.Context, m crashtest.Member) error {
			return consume(ctx, m.DSN, m.Brokers, m.ClientID)
		})
	}
	_ = test // func TestPaymentsStandACrash(t *testing.T)
}
