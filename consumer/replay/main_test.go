package replay_test

import (
	"os"
	"testing"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

func TestMain(m *testing.M) { os.Exit(consumertest.Main(m)) }
