package deduptest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// noting notes errors instead of failing for them.
type noting struct {
	testing.TB
	errors int
}

func (n *noting) Errorf(string, ...any) { n.errors++ }

func TestAConnectionThatIsKeptDoesNotHoldATestUp(t *testing.T) {
	noted := &noting{TB: t}
	db := New(t)
	pool := OpenPool(t, db.DSN, nil)
	kept, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	closePool(noted, pool, 100*time.Millisecond)
	require.Equal(t, 1, noted.errors)
	kept.Release()
	closePool(noted, db.Pool, poolLimit)
	require.Equal(t, 1, noted.errors, "all are back")
}
