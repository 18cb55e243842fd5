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

// asConsumer are the arguments that make this test binary a run's consumer.
var asConsumer = []string{"consumer-of-a-test"}

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
	goleak.VerifyTestMain(m)
}
