package intake

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deduptest.Wrap(m)) }
