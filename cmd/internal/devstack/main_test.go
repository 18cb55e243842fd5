package devstack

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// The arguments that make this test binary a run's consumer, and one that can't start.
var (
	asConsumer       = []string{"consumer-of-a-test"}
	asBrokenConsumer = []string{"broken-consumer-of-a-test"}
)

func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], asConsumer) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := Consume(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if slices.Equal(os.Args[1:], asBrokenConsumer) {
		fmt.Fprintln(os.Stderr, "no such luck")
		os.Exit(3)
	}
	goleak.VerifyTestMain(m)
}
