package consumer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/consumer/internal/wire"
)

func TestBatchWithoutARecordLeftGivesItsRoomBack(t *testing.T) {
	p := &partition{data: wait.NewBell()}
	p.readFrom(9, nil)
	p.add(&wire.Fetched{Next: 10, Costs: wire.Costs{{Next: 10, Bytes: 1 << 20}}}) // offsets 0 to 9, of which compaction took 9
	require.True(t, p.beyond(9))
	got := p.take(100, 1<<20)
	require.Equal(t, taken{next: 10}, got)
	require.Zero(t, p.bytes)
	require.Equal(t, 1<<20, p.done(10))
	require.Zero(t, p.discard())
}
