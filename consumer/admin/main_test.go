package admin

import (
	"os"
	"testing"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }
