package idempotency_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// postOnce sends a request until it is answered for good. The key is made outside of the loop: a new one for each try
// would be a new request each time, and nobody could tell.
func postOnce(ctx context.Context, client *http.Client, url string,
	body []byte) (status int, answer []byte, err error) {
	key := uuid.NewString()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		var again time.Duration
		status, answer, again, err = postWithKey(ctx, client, url, key, body)
		if err == nil && again < 0 {
			return status, answer, nil
		}
		select {
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("post %s: not answered: %w", url, ctx.Err())
		case <-time.After(max(pause, again)):
		}
	}
}

// postWithKey is one try. The answer is for good where again is below zero, and else to be asked for after that time.
func postWithKey(ctx context.Context, client *http.Client, url, key string, body []byte) (
	status int, answer []byte, again time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	response, err := client.Do(r)
	if err != nil {
		return 0, nil, 0, err
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, nil, 0, err
	}
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err == nil || response.StatusCode >= http.StatusInternalServerError {
		return response.StatusCode, answer, time.Duration(seconds) * time.Second, nil
	}
	return response.StatusCode, answer, -1, nil
}
