package receiver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func opened(t *testing.T, cfg Config) *Receiver {
	t.Helper()
	r, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// post is a call as a webhook makes it. Its answer is a status, or an error where there is none within a moment.
func post(t *testing.T, r *Receiver, key string, offset int, limit time.Duration) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL()+"/not%2Fify", strings.NewReader(`{"a": 1}`))
	require.NoError(t, err)
	req.Header = http.Header{"Idempotency-Key": {key}, "X-Firstseen-Topic": {"a%20topic"},
		"X-Firstseen-Partition": {"2"}, "X-Firstseen-Offset": {fmt.Sprint(offset)}, "X-Firstseen-Raw-Id": {"id%201"}}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestReceiverKeepsWhatItIsSent(t *testing.T) {
	r := opened(t, Config{})
	code, err := post(t, r, "k", 7, time.Minute)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, code)
	require.Equal(t, []Call{{Handler: "not/ify", Topic: "a topic", Partition: 2, Offset: 7, Key: "k", RawID: "id 1",
		Body: []byte(`{"a": 1}`)}}, r.Calls())
}

func TestReceiverAnswersAsItsFunctionHasIt(t *testing.T) {
	for code, err := range map[int]error{500: errors.New("not now"), 422: &RefusedError{errors.New("never")}} {
		r := opened(t, Config{Handle: func(context.Context, *Call) error { return err }})
		answered, err := post(t, r, "k", 0, time.Minute)
		require.NoError(t, err)
		require.Equal(t, code, answered)
		require.Empty(t, r.Calls())
	}
}

// Each way to fail comes, no key meets too many, and enough calls go well in between.
func TestReceiverFailsInEachWayAndEachCallGoesWellAtLast(t *testing.T) {
	r := opened(t, Config{Fails: true, Seed: 3})
	answers, handled, failed, wellBefore := map[string]int{}, 0, 0, wellBetween
	for i := range 150 {
		for tries := 0; ; tries++ {
			require.LessOrEqual(t, tries, faultsOfKey)
			code, err := post(t, r, fmt.Sprint("key-", i), i, 3*late)
			how := fmt.Sprint(code)
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				how = "silence"
			case err != nil:
				how = "reset"
			}
			if len(r.Calls()) > handled {
				how, handled = how+" when it was handled", len(r.Calls())
			}
			if answers[how]++; code == http.StatusNoContent {
				wellBefore++
				break
			}
			require.GreaterOrEqual(t, wellBefore, wellBetween)
			wellBefore, failed = 0, failed+1
		}
	}
	for _, how := range []string{"204 when it was handled", "500 when it was handled", "reset when it was handled",
		"silence when it was handled", "429", "500", "reset"} {
		require.Positive(t, answers[how], how)
	}
	require.Len(t, answers, 7)
	require.Greater(t, failed, 20)
}

func TestTrapSpringsOnceTheCallIsHandledAndNotAnswered(t *testing.T) {
	r := opened(t, Config{})
	handled := -1
	met := r.Trap(func() { handled = len(r.Calls()) })
	_, err := post(t, r, "k", 0, time.Minute)
	require.Error(t, err)
	<-met
	require.Equal(t, 1, handled)
	code, err := post(t, r, "k", 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, code)
}
