package service

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Whoever asked for it need not be there any more.
func TestJobsAreDoneByTheProgramBesideItsConsumer(t *testing.T) {
	s := newStage(t)
	scopes, err := s.store.Scopes(t.Context(), []dedup.ScopeKey{{Handler: "book"}})
	require.NoError(t, err)
	m := dedup.Message{ID: uuid.New(), Topic: "orders"}
	tx, err := s.store.Accept(t.Context(), &dedup.Batch{Entries: []dedup.Entry{{Scope: scopes.IDs[0], Message: &m,
		State: dedup.Dead, Reason: "permanent"}}})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	inbox := operate.Of(s.store)
	made, _, err := inbox.CreateJob(t.Context(), operate.NewJob{ID: uuid.New(), Kind: operate.JobDiscard},
		operate.By{Actor: "ann", Why: "spam"})
	require.NoError(t, err)
	var job *operate.Job
	require.Eventually(t, func() bool {
		job, err = inbox.Job(t.Context(), made.ID)
		return err == nil && job.State == operate.JobDone
	}, waitFor, 10*time.Millisecond)
	require.EqualValues(t, 1, job.Done)
	require.Equal(t, dedup.ThisProcess(), job.Worker)
}
