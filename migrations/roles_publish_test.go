package migrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestConsumerRolePublishesDeadLettersAndChangesNothingElseAboutThem(t *testing.T) {
	db := withRoles(t, "")
	store, err := dedup.Open(t.Context(), db.consumer, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	scopes, err := store.Scopes(t.Context(), []dedup.ScopeKey{{Handler: "h"}})
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), `insert into firstseen.dead_letters (scope_id, message_id, topic, reason)
		values ($1, $2, 'orders', 'permanent')`, scopes.IDs[0], uuid.New())
	require.NoError(t, err)
	n, err := operate.Of(store).PublishDead(t.Context(), time.Minute, func(_ context.Context,
		letters []operate.DeadLetter) ([]operate.Fate, error) {
		return make([]operate.Fate, len(letters)), nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = operate.Of(store).PublishDead(t.Context(), time.Minute, func(context.Context,
		[]operate.DeadLetter) ([]operate.Fate, error) {
		return []operate.Fate{operate.Published}, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = db.consumer.Exec(t.Context(), `update firstseen.dead_letters set payload = 'other'`)
	require.Equal(t, denied, code(err))
}
