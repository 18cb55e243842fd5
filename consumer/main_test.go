package consumer

import (
	"os"
	"testing"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) { os.Exit(consumertest.Main(deduptest.Wrap(m))) }
