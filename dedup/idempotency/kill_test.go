package idempotency_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/twins"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

func TestServiceKilledAgainAndAgainAnswersAllTwinsAlike(t *testing.T) {
	t.Run("in transaction", func(t *testing.T) {
		l, answers := killAgainAndAgain(t, childService{}, "COMMIT")
		effects := map[string]int64{}
		var what string
		var id int64
		l.Each(`select what, id from effects`, []any{&what, &id}, func() {
			require.NotContains(t, effects, what, "it took effect twice")
			effects[what] = id
		})
		require.Len(t, effects, len(answers))
		for key, answer := range answers {
			require.Equal(t, made{ID: effects[key]}, answer, key)
		}
	})
	t.Run("claimed", func(t *testing.T) {
		l, answers := killAgainAndAgain(t, childService{Claimed: true}, "UPDATE 1")
		var what string
		var id, fence int64
		var n int
		// Handlers may have run more often, each under a fence of its own; the last of them has answered.
		const lastCalls = `select what, r.id, max(c.fence) from received r join calls c using (what) group by 1, 2`
		l.Each(lastCalls, []any{&what, &id, &fence}, func() {
			require.Equal(t, made{ID: id, Fence: fence}, answers[what], what)
			n++
		})
		require.Equal(t, len(answers), n)
	})
}

// killAgainAndAgain gives the answer that each key has got.
func killAgainAndAgain(t *testing.T, service childService, swallow string) (*twins.Load, map[string]made) {
	l := twins.New(t, twins.Config{Tables: killTables, Swallow: swallow, Kills: deduptest.Kills(t, 3),
		Child: service.child, Request: request, Read: func(status int, body []byte) (string, error) {
			switch {
			case status == http.StatusConflict && !strings.Contains(string(body), idempotency.CodeInProgress):
				t.Errorf("%s", body)
				return "", nil
			case status != http.StatusCreated:
				return "", fmt.Errorf("%d: %s", status, body)
			}
			return string(body), nil
		}})
	answers := map[string]made{}
	for key, told := range l.Run(nil) {
		var m made
		require.NoError(t, json.Unmarshal([]byte(told), &m), key)
		answers[key] = m
	}
	l.Each(`select from firstseen.idempotency where status is null or lease_until is not null`, nil, func() {
		t.Error("a key is stuck")
	})
	return l, answers
}

// child is the service as a process of its own.
func (c childService) child(dsn, addr string) child.Spec {
	c.DSN, c.Addr = dsn, addr
	spec, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return child.Spec{Path: os.Args[0], Env: []string{childSpec + "=" + string(spec)}}
}

func request(service, key string) (*http.Request, error) {
	r, err := http.NewRequest(http.MethodPost, service+"/orders", strings.NewReader(key))
	if err == nil {
		r.Header.Set(idempotency.Header, key)
	}
	return r, err
}
