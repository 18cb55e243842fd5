package fetch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/wait"
)

func TestBatchWithoutARecordLeftGivesItsRoomBack(t *testing.T) {
	p := &Partition{Data: wait.NewBell()}
	p.ReadFrom(9, nil)
	// offsets 0 to 9, of which compaction took 9
	p.Add(&wire.Fetched{Next: 10, Costs: wire.Costs{{Next: 10, Bytes: 1 << 20}}})
	require.True(t, p.Beyond(9))
	got := p.Take(100, 1<<20)
	require.Equal(t, Taken{Next: 10}, got)
	require.Zero(t, p.bytes)
	require.Equal(t, 1<<20, p.Done(10))
	require.Zero(t, p.Discard())
}
