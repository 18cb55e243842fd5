package admin

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/operate"
)

const large = 60 << 20

// Whoever reads slowly holds a piece, and no value.
func TestLargeValueIsSentInPiecesOfBoundedMemory(t *testing.T) {
	s := newStage(t, nil)
	parts := s.parts()
	parts.Memory = memory.New(64 << 20)
	s.service.Attach(parts)
	value := make([]byte, large)
	for i := range value {
		value[i] = byte(i * i >> 7)
	}
	id := s.add("large", operate.StatusDead, dedup.Message{Value: value})
	response, err := s.client.Get(s.url(prefix + "/messages/value" + values("status", "dead", "handler", "book", "id", "large")))
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.EqualValues(t, large, response.ContentLength)
	require.Equal(t, `attachment; filename="`+id.String()+`.bin"`, response.Header.Get("Content-Disposition"))
	require.Equal(t, parts.Memory.Limit()/16, parts.Memory.Used())
	piece, most := make([]byte, 1<<20), uint64(0)
	for at := 0; at < large; at += len(piece) {
		_, err := io.ReadFull(response.Body, piece)
		require.NoError(t, err)
		require.True(t, bytes.Equal(value[at:at+len(piece)], piece), at)
		if at%(10<<20) == 0 {
			runtime.GC()
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
	}
	runtime.KeepAlive(value)
	require.Less(t, most, uint64(large+40<<20), "the value itself is the test's")
	require.Eventually(t, func() bool { return parts.Memory.Used() == 0 }, 3*time.Minute, 10*time.Millisecond)
}

func TestValueOfAMessageThatIsRedrivenMeanwhileEndsShort(t *testing.T) {
	s := newStage(t, nil)
	s.add("large", operate.StatusDead, dedup.Message{Value: make([]byte, 30<<20)})
	response, err := s.client.Get(s.url(prefix + "/messages/value" + values("status", "dead", "handler", "book", "id", "large")))
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	_, err = operate.Of(s.store).Discard(t.Context(), operate.Filter{}, operate.By{Actor: "ann", Why: "test"})
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Eventually(t, func() bool { return bytes.Contains([]byte(s.logged()), []byte("ended early")) }, 3*time.Minute, 10*time.Millisecond)
}

func TestValueIsThatOfItsTenantAndStatus(t *testing.T) {
	s := newStage(t, withTokens)
	read := []string{"Authorization", "Bearer " + readToken}
	s.add("order-1", operate.StatusFailed, dedup.Message{Value: []byte("of nobody")})
	s.add("order-1", operate.StatusFailed, dedup.Message{Tenant: "acme", Value: []byte("of acme")})
	s.add("order-2", operate.StatusDead, dedup.Message{})
	s.add("order-3", operate.StatusProcessed, dedup.Message{Value: []byte{}})
	path := func(pairs ...string) string {
		return prefix + "/messages/value" + values(append(pairs, "handler", "book")...)
	}
	for want, pairs := range map[string][]string{"of nobody": {"status", "failed", "id", "order-1"},
		"of acme": {"status", "failed", "id", "order-1", "tenant", "acme"}, "": {"status", "processed", "id", "order-3"}} {
		answer := s.raw(path(pairs...), read...)
		require.Equal(t, []any{http.StatusOK, want}, []any{answer.StatusCode, string(answer.body)})
	}
	s.refused(http.StatusUnauthorized, http.MethodGet, path("status", "failed", "id", "order-1"), "")
	for text, pairs := range map[string][]string{"no dead message": {"status", "dead", "id", "order-1"},
		"it is null": {"status", "dead", "id", "order-2"}, "no failed message": {"status", "failed", "id", uuid.NewString()}} {
		require.Contains(t, s.refused(http.StatusNotFound, http.MethodGet, path(pairs...), "", read...).Detail, text)
	}
}

func TestLargeValueOfWhichSomethingIsHiddenIsNotSent(t *testing.T) {
	s := newStage(t, func(s *stage) { s.settings.Mask = mask.Config{Values: []string{"orders:/iban"}} })
	s.add("small", operate.StatusDead, dedup.Message{Value: []byte(`{"iban":"S3CRET","n":1.50}`)})
	s.add("large", operate.StatusDead, dedup.Message{Value: append([]byte(`{"iban":"S3CRET"}`), bytes.Repeat([]byte(" "), singleBytes)...)})
	path := prefix + "/messages/value?status=dead&handler=book&id="
	require.Equal(t, `{"iban":"***","n":1.50}`, string(s.raw(path+"small").body))
	require.Contains(t, s.refused(http.StatusForbidden, http.MethodGet, path+"large", "").Detail, "http.mask")
	parts := s.parts()
	parts.Memory = memory.New(256) // a piece is not all of the small one either
	s.service.Attach(parts)
	s.refused(http.StatusForbidden, http.MethodGet, path+"small", "")
}

// raw asks for what is no JSON.
func (s *stage) raw(path string, headers ...string) reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url(path), nil)
	require.NoError(s.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.client.Do(r)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, response.Body.Close()) }()
	content, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return reply{response, content}
}
