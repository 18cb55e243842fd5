package outbox_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childDSN); dsn != "" {
		os.Exit(runChild(dsn))
	}
	goleak.VerifyTestMain(deduptest.Wrap(m))
}
