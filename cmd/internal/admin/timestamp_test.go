package admin

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup"
)

func TestEveryAnswerShowsATimestampThatIsNoTime(t *testing.T) {
	s := newStage(t, nil)
	var m dedup.Message
	m.Stamp(1764300000000000)
	for _, status := range dedup.Statuses {
		s.add("m-"+string(status), status, m)
	}
	m.Value = []byte("other")
	s.add("m-processed", dedup.StatusProcessed, m)
	paths := []string{"/dead-letters", "/dead-letters?content=true", "/dead-letters/book/m-dead", "/conflicts", "/explain?id=m-failed"}
	for _, status := range dedup.Statuses {
		paths = append(paths, "/messages?status="+string(status))
	}
	for _, path := range paths {
		body := string(s.get(prefix + path).body)
		require.Contains(t, body, `"produced_at":null`, path)
		require.Contains(t, body, `"raw_timestamp":1764300000000000`, path)
	}
}

func TestWhatIsNoJSONIsAnErrorAndNoEmptyAnswer(t *testing.T) {
	s := newStage(t, func(c *config.Config) { c.Health.Degraded.FailureRatio = math.NaN() })
	w := httptest.NewRecorder()
	require.Error(t, writeJSON(w, http.StatusOK, jsonType, math.NaN()))
	require.Zero(t, w.Body.Len())
	require.Empty(t, w.Header())
	p := s.refused(http.StatusInternalServerError, http.MethodGet, "/healthz", "")
	require.NotEmpty(t, p.Request)
	require.Contains(t, s.logged(), "unsupported value: NaN")
}
