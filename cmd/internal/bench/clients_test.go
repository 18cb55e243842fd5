package bench

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// keysHeard answers as a service does that knows keys, and remembers who was asked with which.
type keysHeard struct {
	mu   sync.Mutex
	seen map[string]int
}

func (k *keysHeard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if k.seen[key]++; k.seen[key] > 1 && key != "" {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	w.WriteHeader(http.StatusCreated)
}

func TestClientsCountEachAnswerAndThoseGivenBefore(t *testing.T) {
	for name, c := range map[string]struct {
		key      keying
		replayed func(answers int) int
	}{
		"fresh": {freshKeys, func(int) int { return 0 }},
		"none":  {noKeys, func(int) int { return 0 }},
		"again": {keptKeys{{"a"}, {"b"}, {"c"}}.again, func(answers int) int { return answers - 3 }},
	} {
		t.Run(name, func(t *testing.T) {
			service := &keysHeard{seen: map[string]int{}}
			server := httptest.NewServer(service)
			defer server.Close()
			asking := newClients(strings.TrimPrefix(server.URL, "http://"), 3, c.key)
			defer asking.close()
			heard, err := asking.ask(t.Context(), 10*time.Millisecond)
			require.NoError(t, err)
			all := 0
			for _, n := range service.seen {
				all += n
			}
			require.Len(t, heard.answers, all)
			require.Equal(t, c.replayed(all), heard.replayed)
		})
	}
}

func TestClientsTakeNothingButCreatedForAnAnswer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	asking := newClients(strings.TrimPrefix(server.URL, "http://"), 1, freshKeys)
	defer asking.close()
	_, err := asking.ask(t.Context(), time.Millisecond)
	require.ErrorContains(t, err, "404")
}
