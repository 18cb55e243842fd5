package idempotencytest_test

import (
	"testing"
	"time"

	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/idempotency/idempotencytest"
)

func TestMemoryIsAStore(t *testing.T) {
	now := time.Now()
	idempotencytest.TestStore(t, idempotencytest.Kit{
		New: func(*testing.T) idempotency.Store {
			return &idempotencytest.Memory{Now: func() time.Time { return now }}
		},
		Pass: func(_ *testing.T, _ idempotency.Store, d time.Duration) { now = now.Add(d) },
	})
}
