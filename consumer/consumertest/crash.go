package consumertest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/firstseen/firstseen/consumer/crashtest"
)

// CrashTest proves handlers in Go, as `firstseen crashtest` does those in SQL: it handles the messages of c again
// and again while consumers are killed, messages come twice, Postgres crashes and so on, and fails the test where
// the tables don't hold the same rows each time. c needs Messages, and in Schema what makes the handlers' tables;
// its Command is not used. The broker is one in this process; with c.Brokers a real one, [Kafka]'s say.
//
// consume is a consumer as the program has it, until ctx ends: with a pool to m.DSN, with m.Brokers, and m.ClientID
// as consumer.Connection.ClientID. m.Batch is for consumer.Config.MaxBatch, and m.Failing goes around handlers that
// are to fail now and then too. A handler that posts to a URL is named in c.Webhooks, and posts to m.Webhook(its name)
// within crashtest.WebhookTimeout. It runs in processes of its own: this test binary, which runs the test again. So
// call CrashTest first in a test, and nothing after it that needs to run once.
func CrashTest(t testing.TB, c crashtest.Config, consume func(ctx context.Context, m crashtest.Member) error) {
	t.Helper()
	if m, is, err := crashtest.Here(); is {
		consumeAndExit(m, err, consume)
	}
	command, err := crashtest.OfThisProgram("-test.run="+only(t.Name()), "-test.count=1", "-test.timeout=0")
	if err != nil {
		t.Fatalf("consumertest: %v", err)
	}
	c.Command = command
	if c.Tell == nil {
		c.Tell = func(line string) { t.Log(line) }
	}
	result, err := crashtest.Run(context.Background(), c)
	if err != nil {
		t.Fatalf("consumertest: crash test: %v", err)
	}
	text := result.Text(func(seed uint64, run int) string { return fmt.Sprintf("Seed: %d, Only: %d", seed, run) })
	if !result.Same {
		t.Errorf("consumertest: what the handlers do is not the same each time\n%s", text)
		return
	}
	t.Log(text)
}

// only is the pattern of one test.
func only(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// consumeAndExit is the process that is there to be killed.
func consumeAndExit(m crashtest.Member, err error, consume func(ctx context.Context, m crashtest.Member) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	if err == nil {
		err = consume(ctx, m)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "consumertest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
