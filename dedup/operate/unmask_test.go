package operate_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/operate"
)

func TestUnmaskIsInTheAuditOfTheMessageAndGivesNothingOtherwise(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := message(0, "k")
	s.settled(operate.StatusDead, s.scope, m)
	by := operate.By{Actor: "ann", Why: "the customer asks"}
	_, err := s.inbox.Unmask(t.Context(), "h", "", []uuid.UUID{m.ID}, operate.By{Actor: "ann"})
	require.ErrorContains(t, err, "say what for")
	for _, who := range [][2]string{{"other", ""}, {"h", "other"}} {
		found, err := s.inbox.Unmask(t.Context(), who[0], who[1], []uuid.UUID{m.ID}, by)
		require.NoError(t, err)
		require.Nil(t, found)
	}
	e, err := s.inbox.ExplainID(t.Context(), m.ID)
	require.NoError(t, err)
	require.Empty(t, e.Seen[0].Audit)
	found, err := s.inbox.Unmask(t.Context(), "h", "", []uuid.UUID{uuid.New(), m.ID}, by)
	require.NoError(t, err)
	require.Equal(t, m.Value, found.Seen[0].Stored.Message.Value)
	e, err = s.inbox.ExplainID(t.Context(), m.ID)
	require.NoError(t, err)
	require.Len(t, e.Seen[0].Audit, 1)
	require.Equal(t, []string{"ann", "unmask", "the customer asks"},
		[]string{e.Seen[0].Audit[0].Actor, e.Seen[0].Audit[0].Action, e.Seen[0].Audit[0].Why})

	_, err = s.pool.Exec(t.Context(), `alter table firstseen.audit add constraint full_disk check (action <> 'unmask') not valid`)
	require.NoError(t, err)
	found, err = s.inbox.Unmask(t.Context(), "h", "", []uuid.UUID{m.ID}, by)
	require.Error(t, err)
	require.Nil(t, found)
}
