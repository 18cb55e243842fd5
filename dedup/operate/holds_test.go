package operate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestWhatAProcessToldOfItsHoldsIsThereUntilItTellsAnew(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	member, other := uuid.New(), uuid.New()
	tell := func(member uuid.UUID, owner string, list ...holds.Hold) {
		t.Helper()
		require.NoError(t, s.store.TellHolds(t.Context(), "billing", member, owner, list))
	}
	told := func() []operate.ToldHolds {
		t.Helper()
		found, err := s.inbox.Holds(t.Context())
		require.NoError(t, err)
		return found
	}
	since := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	held := holds.Hold{Subject: holds.Partition("orders", 3), Code: holds.CutOff, Since: since, Reason: "gone",
		Tries: 1}
	hostile := held
	hostile.Reason = "\x00\xff" + strings.Repeat("x", 10_000)

	tell(member, "host 1")
	require.Empty(t, told())
	tell(member, "host 1", held)
	tell(other, "host 2", hostile, held)
	found := told()
	require.Len(t, found, 2)
	require.Equal(t, []string{"billing", "host 1"}, []string{found[0].Consumer, found[0].Owner})
	require.True(t, since.Equal(found[0].Holds[0].Since))
	found[0].Holds[0].Since = since
	require.Equal(t, []holds.Hold{held}, found[0].Holds)
	require.False(t, found[0].Stale)
	require.WithinDuration(t, time.Now(), found[0].ToldAt, time.Minute)
	require.Less(t, len(found[1].Holds[0].Reason), 1000)

	tell(member, "host 1", held, held)
	require.Len(t, told()[0].Holds, 2)
	s.exec(`update firstseen.holds set told_at = now() - interval '2 minutes' where owner = 'host 2'`)
	require.True(t, told()[1].Stale)
	tell(member, "host 1")
	require.Len(t, told(), 1, "its own only")
	s.exec(`update firstseen.holds set told_at = now() - interval '2 days'`)
	tell(member, "host 1", held)
	found = told()
	require.Len(t, found, 1)
	require.Equal(t, "host 1", found[0].Owner, "the other was killed long ago")
}
