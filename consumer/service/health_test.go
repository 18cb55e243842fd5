package service

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

func TestHealthIsJudgedByTheLimits(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		change func(*facts)
		check  string
		status string
		reason string
	}{
		"all is well": {func(*facts) {}, "group", healthy, "1 partition assigned"},
		"postgres away": {func(f *facts) { f.postgres, f.backlog = errors.New("x"), nil },
			"postgres", degraded, "does not answer"},
		"not counted": {func(f *facts) { f.postgres, f.backlog = errors.New("x"), nil }, "backlog", healthy,
			"could not be found out"},
		"not in time":  {func(f *facts) { f.backlog = nil }, "backlog", degraded, "could not be found out"},
		"never opened": {func(f *facts) { f.opened = false }, "postgres", degraded, "not been reached"},
		"kafka away": {func(f *facts) { f.status.KafkaSince = now.Add(-2 * time.Minute) }, "kafka", degraded,
			"no broker has answered for 2m"},
		"no topic": {func(f *facts) { f.status.State = consumer.Starting },
			"group", degraded, "not a member yet"},
		"joins": {func(f *facts) { f.status.State = consumer.Joining }, "group", healthy, "joining"},
		"joins for long": {func(f *facts) { f.status.State, f.status.Since = consumer.Joining, now.Add(-time.Hour) },
			"group", degraded, "joining for 1h"},
		"lag": {func(f *facts) { f.status.Partitions[0].Lag = 101 }, "backlog", degraded,
			"101 messages wait in Kafka"},
		"lag at the limit": {func(f *facts) { f.status.Partitions[0].Lag = 100 }, "backlog", healthy, "100 messages"},
		"lag and parked": {func(f *facts) {
			f.status.Partitions[0].Lag, f.backlog[0].Pending, f.backlog[0].Failed = 60, 30, 20
		}, "backlog", degraded, "60 messages wait in Kafka for this process, and 50 are parked"},
		"far beyond": {func(f *facts) { f.backlog[0].Pending, f.backlog[0].Capped = 1001, true },
			"backlog", unhealthy, "or more"},
		"lag unknown": {func(f *facts) { f.status.Partitions[0].Lag = -1 }, "backlog", healthy, "0 messages"},
		"old in kafka": {func(f *facts) { f.status.Partitions[0].LagTime = 2 * time.Minute },
			"oldest_age", degraded, "waited for 2m, in Kafka"},
		"old and parked": {func(f *facts) { f.backlog[0].OldestAt = now.Add(-11 * time.Minute) }, "oldest_age",
			unhealthy, "waited for 11m, parked for handler book"},
		"some fail": {func(f *facts) {
			f.rates = handlers.Rates{Over: time.Minute, Handled: 90, Failed: 10, FailureRatio: 0.1}
		}, "failure_ratio", degraded, "10 of 100 attempts failed in the last 1m"},
		"most fail": {func(f *facts) { f.rates.FailureRatio = 0.6 }, "failure_ratio", unhealthy, "failed"},
		"held by an outage": {func(f *facts) { f.status.Holds = held(holds.Postgres) }, "held", degraded,
			"orders/0 for 1h (postgres)"},
		"a person decides": {func(f *facts) { f.status.Holds = held(holds.TopicReset) }, "held", unhealthy,
			"topic_reset waits for a person's decision: to read the new topic"},
		"cut off": {func(f *facts) { f.status.Holds = held("cut_off") }, "held", unhealthy,
			"cut_off waits for a person's decision"},
		"messages lost": {func(f *facts) { f.status.Holds = held("messages_lost") }, "held", unhealthy,
			"messages_lost waits for a person's decision"},
		"a topic is denied": {func(f *facts) {
			f.status.Topics[0].Held, f.status.Topics[0].HeldSince = holds.Denied, now.Add(-time.Hour)
		}, "topics", degraded, "1 of 2 topics can't be read: orders for 1h: the brokers deny"},
		"messages die": {func(f *facts) { f.dead = ptr(int64(11)) }, "dead_letters", degraded,
			"11 messages went to the dead letters within an hour"},
		"few messages die": {func(f *facts) { f.dead = ptr(int64(10)) }, "dead_letters", healthy, "10 messages"},
		"all messages die": {func(f *facts) { f.dead = ptr(int64(101)) }, "dead_letters", unhealthy, "101 messages"},
		"paused": {func(f *facts) {
			f.pauses = []dedup.Pause{{Kind: dedup.PauseTopic, Topic: "orders", Why: "secret"}}
		}, "paused", healthy, "paused by operators: topic orders"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{now: now, opened: true, backlog: []operate.Backlog{{Handler: "book"}},
				status: consumer.Status{State: consumer.Consuming, Since: now,
					Topics:     []consumer.TopicStatus{{Name: "orders"}, {Name: "other"}},
					Partitions: []consumer.PartitionStatus{{Topic: "orders", HeldSince: now}}},
				limits: Limits{
					Degraded: Limit{Backlog: 100, OldestAge: time.Minute, FailureRatio: 0.05,
						DeadLetters: 10},
					Unhealthy: Limit{Backlog: 1000, OldestAge: 10 * time.Minute, FailureRatio: 0.5,
						DeadLetters: 100}}}
			test.change(&f)
			h := f.judge()
			for _, c := range h.Checks {
				if c.Name == test.check {
					require.Equal(t, test.status, c.Status, c.Reason)
					require.Contains(t, c.Reason, test.reason)
					require.NotContains(t, c.Reason, "secret")
				} else if name != "postgres away" && name != "not counted" {
					require.Equal(t, healthy, c.Status, "%s: %s", c.Name, c.Reason)
				}
			}
			if name != "not counted" {
				require.Equal(t, test.status, h.Status)
			}
		})
	}
}

// held is a partition that has waited for an hour.
func held(code string) []holds.Hold {
	return []holds.Hold{{Subject: holds.Partition("orders", 0), Code: code,
		Since: time.Now().Add(-time.Hour), Reason: "x", Tries: 1}}
}

func TestALimitOfZeroIsNone(t *testing.T) {
	c := Check{}
	c.hold(1e9, 0, 0)
	require.Equal(t, healthy, c.Status)
	require.Nil(t, c.Limit)
	c.hold(5, 4, 0)
	require.Equal(t, []any{degraded, 4.0}, []any{c.Status, *c.Limit})
	c.hold(5, 0, 4)
	require.Equal(t, []any{unhealthy, 4.0}, []any{c.Status, *c.Limit})
	c.hold(3, 0, 4)
	require.Equal(t, []any{healthy, 4.0}, []any{c.Status, *c.Limit})
}

func TestDurationsAreSpokenShort(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 1500 * time.Millisecond: "1.5s", 2 * time.Minute: "2m",
		90 * time.Second: "1m30s", time.Hour: "1h", 3*time.Hour + 10*time.Minute + 5*time.Second: "3h10m"} {
		require.Equal(t, want, spoken(d))
	}
}
