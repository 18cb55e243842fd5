package retention

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/dedup/operate"
)

const day = 24 * time.Hour

// safe are facts that allow forgetting what is older than two days, of one consumer in two partitions of a topic.
func safe() *facts {
	now := time.Now()
	return &facts{
		reaches: []operate.Position{{Consumer: "group", Topic: "orders", Next: 100},
			{Consumer: "group", Topic: "orders", Partition: 1, Next: 0}},
		offsets: map[place]cluster.GroupOffset{
			{"group", "orders", 0}: {Committed: 100, Earliest: 50, Stable: 100, End: 100},
			{"group", "orders", 1}: {Committed: -1, Earliest: 0, Stable: 0, End: 0},
		},
		topics: map[string]cluster.TopicFacts{"orders": {Name: "orders",
			Cleanup: "delete", Retention: day, Segment: time.Hour}},
		oldest: map[string]map[int32]time.Time{"orders": {0: now.Add(-day - time.Hour)}},
	}
}

func (f *facts) judge(age time.Duration) []Refusal {
	return append(f.againstAll(), f.against(age, time.Now().Add(-age))...)
}

func TestIDsMayGoWhereNothingCanBringTheirMessagesAgain(t *testing.T) {
	require.Empty(t, safe().judge(2*day))
	deleted := safe() // the retention of the topic has taken what was processed
	deleted.offsets[place{"group", "orders", 0}] = cluster.GroupOffset{Committed: -1,
		Earliest: 100, Stable: 100, End: 100}
	require.Empty(t, deleted.judge(2*day))
	replayed := safe()
	replayed.reaches = append(replayed.reaches,
		operate.Position{Consumer: "replay/group/x", Topic: "orders", Next: 90, Replay: true, ReplayTo: 90})
	require.Empty(t, replayed.judge(2*day))
	fleeting := safe() // retention.ms is 0
	fleeting.topics["orders"] = cluster.TopicFacts{Name: "orders", Cleanup: "delete", Segment: time.Hour}
	require.Empty(t, fleeting.judge(2*day))
}

func TestIDsAreKeptWhereTheirMessagesMayComeAgain(t *testing.T) {
	at := place{"group", "orders", 0}
	topic := func(change func(*cluster.TopicFacts)) func(*facts) {
		return func(f *facts) {
			f.oldest["orders"][1] = time.Now().Add(-3 * day) // goes without saying
			t := f.topics["orders"]
			change(&t)
			f.topics["orders"] = t
		}
	}
	for name, c := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"partition that was never committed": {func(f *facts) {
			f.offsets[at] = cluster.GroupOffset{Committed: -1, Earliest: 50, Stable: 100, End: 100}
		}, "consumer group has processed orders/0 up to offset 100 and has committed no offset to Kafka"},
		"partitions that were never committed": {func(f *facts) {
			f.reaches[1].Next = 10
			f.offsets[at] = cluster.GroupOffset{Committed: -1, Earliest: 50, Stable: 100, End: 100}
		}, "consumer group has processed orders/0"},
		"killed before the first commit": {func(f *facts) {
			f.offsets[at] = cluster.GroupOffset{Committed: 0, Earliest: 0, Stable: 100, End: 100}
		}, "up to offset 100 and has committed 0 to Kafka"},
		"killed before the commit": {func(f *facts) {
			f.offsets[at] = cluster.GroupOffset{Committed: 99, Earliest: 50, Stable: 100, End: 100}
		}, "up to offset 100 and has committed 99 to Kafka"},
		"group that never came back": {func(f *facts) {
			f.reaches = append(f.reaches, operate.Position{Consumer: "gone", Topic: "orders", Next: 80})
			f.offsets[place{"gone", "orders", 0}] = cluster.GroupOffset{Committed: -1,
				Earliest: 50, Stable: 100, End: 100}
		}, "consumer gone has processed orders/0 up to offset 80 and has committed no offset to Kafka: it would be given those messages again; " +
			"if it is gone for good, delete its rows from the table positions"},
		"replay in progress": {func(f *facts) {
			f.reaches = append(f.reaches,
				operate.Position{Consumer: "replay/group/x", Topic: "orders", Next: 60, Replay: true, ReplayTo: 90})
		}, "replay replay/group/x of orders/0 is going on: it is at offset 60 and ends at 90"},
		"replay of one message": {func(f *facts) {
			f.reaches = append(f.reaches,
				operate.Position{Consumer: "replay/group/x", Topic: "orders", Next: 0, Replay: true, ReplayTo: 1})
		}, "it is at offset 0 and ends at 1"},
		"topic of another cluster": {func(f *facts) {
			f.reaches = append(f.reaches, operate.Position{Consumer: "group", Topic: "elsewhere", Next: 1})
			f.topics["elsewhere"] = cluster.TopicFacts{Name: "elsewhere", Missing: true}
		}, "this cluster has no such partition"},
		"topic with longer retention": {topic(func(t *cluster.TopicFacts) { t.Retention = 2 * day }),
			"topic orders may hold messages for 50h0m0s (retention.ms 2d"},
		"topic that keeps them just as long": {topic(func(t *cluster.TopicFacts) {
			t.Retention = 2*day - time.Hour - clocks
		}), "topic orders may hold messages for 2d"},
		"segments that are longer": {topic(func(t *cluster.TopicFacts) { t.Segment = day }),
			"topic orders may hold messages for 49h0m0s"},
		"topic without retention": {topic(func(t *cluster.TopicFacts) { t.Retention = -1 }),
			"topic orders keeps messages for ever"},
		"compacted topic": {topic(func(t *cluster.TopicFacts) { t.Cleanup = "compact" }),
			"cleanup.policy is compact"},
		"compacted and deleted topic": {topic(func(t *cluster.TopicFacts) { t.Cleanup = "compact,delete" }),
			"cleanup.policy is compact,delete"},
		"settings that may not be seen": {topic(func(t *cluster.TopicFacts) { t.Hidden = cluster.ErrNotAllowed }),
			"how long topic orders keeps messages is not known: the cluster's ACLs"},
		"broker that is late with its deletes": {func(f *facts) { f.oldest["orders"][1] = time.Now().Add(-3 * day) },
			"topic orders still holds a message of"},
		"first message at the very time": {func(f *facts) {
			f.oldest["orders"][0] = time.Now().Add(-2*day + clocks/2)
		}, "(in partition 0)"},
		"timestamp ahead of all clocks": {func(f *facts) {
			f.oldest["orders"][0] = time.UnixMilli(1764300000000000000)
		}, "has a timestamp in the future"},
		"cluster that does not answer": {func(f *facts) { f.fault("x", "%v", errors.New("no\nanswer")) },
			"no; answer"},
	} {
		t.Run(name, func(t *testing.T) {
			f := safe()
			c.change(f)
			got := f.judge(2 * day)
			require.Len(t, got, 1)
			require.Contains(t, got[0].Text, c.want)
		})
	}
}

// Replays have no offsets in Kafka, though their topics count.
func TestConsumersAndTopicsAreEachAskedAboutOnce(t *testing.T) {
	f := facts{reaches: []operate.Position{
		{Consumer: "a", Topic: "orders"}, {Consumer: "a", Topic: "orders", Partition: 1},
		{Consumer: "a", Topic: "payments"},
		{Consumer: "b", Topic: "orders"}, {Consumer: "b", Topic: "payments"},
		{Consumer: "replay/a/x", Topic: "orders", Replay: true, ReplayTo: 9},
		{Consumer: "replay/a/x", Topic: "refunds", Replay: true, ReplayTo: 9},
	}}
	require.Equal(t,
		map[string][]string{"a": {"orders", "payments"}, "b": {"orders", "payments"}}, f.topicsByConsumer())
	require.Equal(t, []string{"orders", "payments", "refunds"}, f.topicNames())
}

func TestWholeDaysAreWrittenInDays(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", day: "1d", 14 * day: "14d", 36 * time.Hour: "36h0m0s"} {
		require.Equal(t, want, days(d))
	}
}
