package service

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(deduptest.Wrap(consumertest.Wrap(m)), goleak.Cleanup(os.Exit))
}
