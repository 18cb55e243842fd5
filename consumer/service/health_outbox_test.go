package service

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

func TestHealthOfTheOutboxIsJudgedByTheLimits(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		change func(*outboxFacts)
		check  string
		status string
		reason string
	}{
		"all is well": {func(*outboxFacts) {}, "outbox_backlog", healthy, "0 messages wait to be sent"},
		"at the limit": {func(f *outboxFacts) { f.backlog[0].Pending, f.backlog[1].Failed = 60, 40 }, "outbox_backlog",
			healthy, "100 messages"},
		"backlog": {func(f *outboxFacts) { f.backlog[0].Pending, f.backlog[1].Failed = 60, 41 }, "outbox_backlog", degraded,
			"101 messages wait to be sent"},
		"delayed is none": {func(f *outboxFacts) { f.backlog[0].Delayed = 1e6 }, "outbox_backlog", healthy, "0 messages"},
		"far beyond": {func(f *outboxFacts) { f.backlog[0].Pending, f.backlog[0].Capped = 1001, true }, "outbox_backlog",
			unhealthy, "or more"},
		"not counted": {func(f *outboxFacts) { f.backlog = nil }, "outbox_backlog", degraded, "could not be found out"},
		"old": {func(f *outboxFacts) { f.backlog[1].OldestAt = now.Add(-2 * time.Minute) }, "outbox_oldest_age", degraded,
			"has waited for 2m, to topic crm"},
		"very old": {func(f *outboxFacts) { f.backlog[0].OldestAt = now.Add(-time.Hour) }, "outbox_oldest_age", unhealthy,
			"has waited for 1h, to topic events"},
		"some fail": {func(f *outboxFacts) {
			f.rates = handlers.Rates{Over: time.Minute, Handled: 90, Failed: 10, FailureRatio: 0.1}
		}, "outbox_failure_ratio", degraded, "10 of 100 attempts failed in the last 1m"},
		"most fail": {func(f *outboxFacts) { f.rates.FailureRatio = 0.6 }, "outbox_failure_ratio", unhealthy, "failed"},
		"messages die": {func(f *outboxFacts) { f.dead = ptr(int64(11)) }, "outbox_dead_letters", degraded,
			"firstseen outbox list --status dead shows why"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{now: now, opened: true, backlog: []operate.Backlog{},
				outbox: &outboxFacts{backlog: []operate.OutboxBacklog{{Topic: "events"}, {Topic: "crm"}}},
				status: consumer.Status{State: consumer.Consuming, Since: now},
				limits: Limits{
					Degraded:  Limit{Backlog: 100, OldestAge: time.Minute, FailureRatio: 0.05, DeadLetters: 10},
					Unhealthy: Limit{Backlog: 1000, OldestAge: 10 * time.Minute, FailureRatio: 0.5}}}
			test.change(f.outbox)
			h := f.judge()
			require.Equal(t, test.status, h.Status)
			for _, c := range h.Checks {
				if c.Name == test.check {
					require.Equal(t, test.status, c.Status, c.Reason)
					require.Contains(t, c.Reason, test.reason)
				} else {
					require.Equal(t, healthy, c.Status, "%s: %s", c.Name, c.Reason)
				}
			}
		})
	}
	f := facts{now: now, opened: true, postgres: errors.New("away"), outbox: &outboxFacts{}}
	require.Equal(t, healthy, f.checkOutboxBacklog().Status, "told once, of Postgres")
	f.outbox = nil
	require.Empty(t, f.checkOutbox(), "this process sends nothing")
}

func TestHealthzTellsOfTheOutboxWhereThisProcessSendsOutOfIt(t *testing.T) {
	s := newStage(t)
	require.NotContains(t, string(s.get("/healthz").body), "outbox")
	_, err := new(outbox.Writer).Add(t.Context(), s.db.Pool, outbox.Message{Topic: "events"})
	require.NoError(t, err)
	_, err = s.db.Pool.Exec(t.Context(), `update firstseen.outbox set added_at = now() - interval '2 hours'`)
	require.NoError(t, err)
	parts := s.parts()
	parts.Relayed = func() handlers.Totals { return handlers.Totals{} }
	s.Attach(parts)
	require.Eventually(t, func() bool {
		var found Check
		for _, c := range s.Health().Checks {
			if c.Name == "outbox_oldest_age" {
				found = c
			}
		}
		return found.Status == degraded && *found.Value > 7000
	}, 3*time.Minute, 50*time.Millisecond)
}
