package dedup_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestHandlersSendAndReceiveUUIDsOfEveryKind(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	tx, err := s.store.Accept(t.Context(), s.batch(s.position(0), newIDs(1)...))
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	id := uuid.New()
	for _, sent := range []any{id, &id, [16]byte(id), id.String(), uuid.NullUUID{UUID: id, Valid: true}} {
		var got, textual uuid.UUID
		var pointed *uuid.UUID
		var bytes [16]byte
		require.NoError(t, tx.Handler().QueryRow(t.Context(), `select $1::uuid, $1::uuid, $1::uuid, $1::uuid::text`,
			sent).Scan(&got, &pointed, &bytes, &textual))
		require.Equal(t, []uuid.UUID{id, id, id, id}, []uuid.UUID{got, *pointed, bytes, textual})
	}
	kept, none := id, &id
	require.NoError(t, tx.Handler().QueryRow(t.Context(), `select null::uuid, null::uuid`).Scan(&kept, &none))
	require.Equal(t, id, kept)
	require.Nil(t, none)
	var back []uuid.UUID
	require.NoError(t, tx.Handler().QueryRow(t.Context(), `select $1::uuid[]`, []uuid.UUID{id, id}).Scan(&back))
	require.Equal(t, []uuid.UUID{id, id}, back)
}
