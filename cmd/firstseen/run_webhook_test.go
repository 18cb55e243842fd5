package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

const signing = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // of Standard Webhooks' published example

// signed is the receiver's side of Standard Webhooks.
func signed(h http.Header, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signing, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), body)
	return err == nil && h.Get("Webhook-Signature") == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestRunCallsAWebhookOnceForEachMessageOfItsTopics(t *testing.T) {
	s := newShop(t, booking)
	other := consumertest.Name(t)
	consumertest.CreateTopic(t, s.addr, other, 1)
	var mu sync.Mutex
	calls, forged := map[string]int{}, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || !signed(r.Header, body) {
			forged++
		}
		id := r.Header.Get("Idempotency-Key")
		if calls[id]++; calls[id] == 1 {
			w.WriteHeader(http.StatusInternalServerError) // each is called again, once
		}
	}))
	defer server.Close()
	hook := fmt.Sprintf("{name: notify, webhook: {url: %q, allow_private: true, secret: '${SIGN}'}, retry: {base: 1ms, cap: 1ms}}", server.URL)
	config := strings.Replace(s.config(s.db.DSN), "billing.book_order}]", "billing.book_order}, "+hook+"]", 1)
	config = strings.Replace(config, "topics: [", fmt.Sprintf("topics: [{name: %s, handlers: [%s]}, ", other, hook), 1)
	t.Setenv("SIGN", signing)
	s.produce(0, 5)
	s.produce(0, 5) // all of them again
	p := start(t, config, "run")
	eventually(t, func() bool {
		var n int
		require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select count(*) from firstseen.inbox`).Scan(&n))
		return n == 10
	})
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.Len(t, calls, 5)
	require.Zero(t, forged, "calls that were not signed with the config's secret")
	for id, n := range calls {
		require.Equal(t, 2, n, id)
	}
	require.Equal(t, 5, s.booked())
	require.Contains(t, p.log.String(), "the webhook's URL is http")
	require.NotContains(t, p.log.String(), strings.TrimPrefix(signing, "whsec_"))
	s.requireAllCommitted()
}
