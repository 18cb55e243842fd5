package ingress_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(childSpec); spec != "" {
		os.Exit(runChild(spec))
	}
	goleak.VerifyTestMain(deduptest.Wrap(m))
}
