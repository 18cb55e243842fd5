package admin

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/memory"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestListWithContentIsBoundedAsAWhole(t *testing.T) {
	s := newStage(t, nil)
	large := bytes.Repeat([]byte("x"), listedBytes)
	for n := range 40 {
		s.add(fmt.Sprint("large-", n), operate.StatusDead, dedup.Message{Key: large, Value: large,
			Headers: []dedup.Header{{Key: "a", Value: large}, {Key: "b", Value: large}}})
	}
	list := s.get(prefix + "/dead-letters?content=true")
	require.NotNil(t, list.at("messages.39"))
	require.Less(t, len(list.body), answerBytes+64<<10)
	require.Equal(t, true, list.at("messages.0.content.value.cut"))
}

// stuck is a client that does not read its answer until it is let go.
type stuck struct {
	*httptest.ResponseRecorder
	free chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	<-s.free
	return len(p), nil
}

func TestAnswersThatNobodyReadsAreFew(t *testing.T) {
	s := newStage(t, nil)
	account := memory.New(8 << 20)
	parts := s.parts()
	parts.Memory = account
	s.service.Attach(parts)
	ask := func(ctx context.Context, w http.ResponseWriter) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+prefix+"/backlog", nil)
		r.RemoteAddr = "127.0.0.1:5"
		s.server.handler().ServeHTTP(w, r)
	}
	free := make(chan struct{})
	var clients sync.WaitGroup
	for range maxAnswers {
		clients.Go(func() { ask(t.Context(), stuck{httptest.NewRecorder(), free}) })
	}
	require.Eventually(t, func() bool { return account.Used() == account.Limit()/4 }, 3*time.Minute, time.Millisecond)
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	one := httptest.NewRecorder()
	ask(impatient, one)
	require.Equal(t, http.StatusServiceUnavailable, one.Code)
	s.get(prefix + "/status")
	close(free)
	clients.Wait()
	require.Empty(t, s.server.api.answers, "given back")
	require.Zero(t, account.Used())
	s.get(prefix + "/backlog")
}

func TestEveryAnswerShowsATimestampThatIsNoTime(t *testing.T) {
	s := newStage(t, nil)
	var m dedup.Message
	m.Stamp(1764300000000000)
	for _, status := range operate.Statuses {
		s.add("m-"+string(status), status, m)
	}
	m.Value = []byte("other")
	s.add("m-processed", operate.StatusProcessed, m)
	paths := []string{"/dead-letters", "/dead-letters?content=true", "/dead-letters/book/m-dead",
		"/conflicts", "/explain?id=m-failed"}
	for _, status := range operate.Statuses {
		paths = append(paths, "/messages?status="+string(status))
	}
	for _, path := range paths {
		body := string(s.get(prefix + path).body)
		require.Contains(t, body, `"produced_at":null`, path)
		require.Contains(t, body, `"raw_timestamp":1764300000000000`, path)
	}
}

func TestWhatIsNoJSONIsAnErrorAndNoEmptyAnswer(t *testing.T) {
	s := newStage(t, func(s *stage) {
		s.settings.Health = service.DefaultLimits()
		s.settings.Health.Degraded.FailureRatio = math.NaN()
	})
	p := s.refused(http.StatusInternalServerError, http.MethodGet, "/healthz", "")
	require.NotEmpty(t, p.Request)
	require.Contains(t, s.logged(), "unsupported value: NaN")
}
