package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/idempotency"
)

const rowsSQL = `
select concat_ws(E'\n', (select string_agg(concat_ws(' ', ctid, xmin, xmax, e), E'\n' order by id) from effects e),
	(select string_agg(concat_ws(' ', ctid, xmin, xmax, i), E'\n' order by id) from firstseen.idempotency i))`

// rows are those of all that a request may write, with the transactions that have written or locked them.
func (s *stage) rows() (text string) {
	s.t.Helper()
	require.NoError(s.t, s.db.Pool.QueryRow(context.Background(), rowsSQL).Scan(&text))
	return text
}

// Route submission with stored response, in its five scenarios.
func TestRouteSubmissionWithStoredResponse(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		s.cfg.UUIDOnly = true
		routes := serve(func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, http.StatusAccepted) })
		key, route := uuid.NewString(), `{"from":"A","to":"B"}`
		var first answer
		t.Run("a first submission is accepted, with its request ID and where it is", func(t *testing.T) {
			first = routes.post(key, route)
			require.Equal(t, []any{http.StatusAccepted, `{"id":1}`, "/orders/1"},
				[]any{first.status, first.body, first.header.Get("Location")})
			require.False(t, first.replayed())
		})
		t.Run("the same again is answered the same, marked, and nothing is queued", func(t *testing.T) {
			again := routes.post(strings.ToUpper(key), ` {"to":"B", "from":"A"} `)
			require.Equal(t, []any{http.StatusAccepted, first.body, first.header.Get("Location"), true},
				[]any{again.status, again.body, again.header.Get("Location"), again.replayed()})
			s.left(1, 1)
		})
		t.Run("another payload with the key is a conflict", func(t *testing.T) {
			require.Equal(t, http.StatusConflict, routes.post(key, `{"from":"A","to":"C"}`).status)
			s.left(1, 1)
		})
		t.Run("no key works without tracking", func(t *testing.T) {
			require.Equal(t, http.StatusAccepted, routes.post("", route).status)
			s.left(2, 1)
		})
		t.Run("a key that is no UUID is refused", func(t *testing.T) {
			require.Equal(t, http.StatusBadRequest, routes.post("route-1", route).status)
			s.left(2, 1)
		})
	})
}

// Tenant-scoped key with conflict.
func TestTenantScopedKeyWithConflict(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		messages := serve(s.create)
		in := []string{"X-Tenant", "acme", "X-Conversation", "c1"}
		first := messages.post("k", `{"text":"hello"}`, in...)
		t.Run("same key, same body: the same message ID and one row, whatever the token", func(t *testing.T) {
			again := messages.post("k", `{"text":"hello"}`, append(in, "Authorization", "Bearer renewed")...)
			require.Equal(t, []any{first.body, true}, []any{again.body, again.replayed()})
			s.left(1, 1)
		})
		t.Run("other body: 409 idempotency_key_conflict", func(t *testing.T) {
			got := messages.post("k", `{"text":"bye"}`, in...)
			require.Equal(t, []any{http.StatusConflict, "idempotency_key_conflict"}, []any{got.status, got.code()})
			require.NotEmpty(t, got.header.Get("X-Request-Id"), "on errors too")
			s.left(1, 1)
		})
		t.Run("no key: as before", func(t *testing.T) {
			require.Equal(t, http.StatusCreated, messages.post("", `{"text":"hello"}`, in...).status)
			s.left(2, 1)
		})
		t.Run("nothing leaks to another tenant or conversation", func(t *testing.T) {
			for _, other := range [][]string{{"X-Tenant", "other", "X-Conversation", "c1"},
				{"X-Tenant", "acme", "X-Conversation", "c2"}} {
				got := messages.post("k", `{"text":"bye"}`, other...)
				require.Equal(t, []any{http.StatusCreated, false}, []any{got.status, got.replayed()})
				require.NotEqual(t, first.body, got.body)
			}
			s.left(4, 3)
		})
	})
}

// HTTP enqueue: the key is optional; header first, the body's field second.
func TestEnqueueWithAnOptionalKey(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		messages := serve(s.create)
		const key, body = "order-1", `{"idempotencyKey":"order-1"}`
		first := messages.post(key, body)
		for rule, got := range map[string]answer{
			"trimmed":             messages.post("  order-1\t", body),
			"quoted":              messages.post(`"order-1"`, body),
			"of the body":         messages.post("", body),
			"empty in the header": messages.post("  ", body),
		} {
			require.Equal(t, []any{first.body, true}, []any{got.body, got.replayed()}, rule)
		}
		s.left(1, 1)
		require.Equal(t, http.StatusBadRequest, messages.post("order-2", body).status, "both, and different")
		require.Equal(t, http.StatusBadRequest,
			messages.post(strings.Repeat("k", idempotency.MaxKeyChars+1), `{}`).status)
		s.left(1, 1)
		require.NotEqual(t, messages.post("", `{}`).body, messages.post("", `{}`).body, "no key twice: two messages")
		s.left(3, 1)
	})
}

// HTTP enqueue: the replay path only selects. Neither a conflict nor a twin that is told to come again writes either.
func TestReplayWritesNothing(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		orders := serve(s.create)
		for key := range 3 {
			orders.post(fmt.Sprint(key), `{}`)
		}
		before := s.rows()
		for key := range 3 {
			require.True(t, orders.post(fmt.Sprint(key), `{}`).replayed())
			require.Equal(t, http.StatusConflict, orders.post(fmt.Sprint(key), `{"n":1}`).status)
		}
		require.Equal(t, before, s.rows())
	})
}

// Records: TTL in hours, by default 24.
func TestRecordsLastForTheirTTL(t *testing.T) {
	for _, ttl := range []time.Duration{0, 36 * time.Hour} {
		inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
			s.cfg.TTL = ttl
			serve(s.create).post("k", `{}`)
			hours := 24
			if ttl > 0 {
				hours = int(ttl.Hours())
			}
			require.Equal(t, 1, count(t, s.db.Pool,
				fmt.Sprintf(`firstseen.idempotency where expires_at = created_at + interval '%d hours'`, hours)))
		})
	}
}
