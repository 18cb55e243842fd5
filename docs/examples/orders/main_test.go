package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }

func TestAnOrderThatIsSentTwiceIsOneOrderAndOneMessage(t *testing.T) {
	db, broker := deduptest.New(t), consumertest.NewFake(t).Addr
	consumertest.CreateTopic(t, broker, "orders", 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, listener, db.DSN, []string{broker}) }()

	post := func(key, body string) (int, string) {
		r, err := http.NewRequest(http.MethodPost, "http://"+listener.Addr().String()+"/orders", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", key)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(text)
	}
	for range 2 {
		status, answer := post("first", `{"item": "book"}`)
		require.Equal(t, http.StatusCreated, status, answer)
		require.Equal(t, `{"id":1,"item":"book"}`, answer)
	}
	status, _ := post("second", `{}`)
	require.Equal(t, http.StatusBadRequest, status)
	status, answer := post("third", `{"item": "pen"}`)
	require.Equal(t, http.StatusCreated, status, answer)
	require.Eventually(t, func() bool { return consumertest.EndOffset(t, broker, "orders", 0) == 2 },
		time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.EqualValues(t, 2, consumertest.EndOffset(t, broker, "orders", 0))
}
