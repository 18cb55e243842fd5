package view

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/doctor"
	"github.com/firstseen/firstseen/cmd/internal/httpjson"
	"github.com/firstseen/firstseen/cmd/internal/retention"
	"github.com/firstseen/firstseen/cmd/internal/telemetry"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Whoever reads --json or the API relies on these files: a change of one is a change of the contract.
func TestViewsAreAsTheirGoldenFiles(t *testing.T) {
	want := map[string]bool{}
	for _, v := range views() {
		name := reflect.TypeOf(v).Name() + ".json"
		require.False(t, want[name], name)
		want[name] = true
		got, err := httpjson.Marshal(v, "  ")
		require.NoError(t, err)
		path := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.WriteFile(path, got, 0o644))
		}
		golden, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(golden), string(got), name)
	}
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.Len(t, files, len(want), "each file is that of a view")
}

// A view's text has no field that is only there at times, but for a message's content and what tells texts from bytes.
func TestNoFieldIsLeftOutWhereThereIsNothing(t *testing.T) {
	for _, v := range views() {
		for f := range reflect.TypeOf(v).Fields() {
			if f.Name != "Content" {
				require.NotContains(t, f.Tag.Get("json"), "omit", "%T %s", v, f.Name)
			}
		}
	}
}

var (
	clock = time.Date(2026, 3, 1, 5, 5, 6, 120_000_000, time.FixedZone("CET", 3600))
	firm  = dedup.Message{ID: uuid.MustParse("1b4e28ba-2fa1-41d2-883f-0016d3cca427"), RawID: "order-4711",
		Tenant: "blue", Topic: "orders", Partition: 3, Offset: 120042, Timestamp: clock, Key: []byte("4711"),
		Value: []byte(`{"total":10.50}`), Headers: []dedup.Header{{Key: "trace", Value: []byte{0, 0xff}},
			{Key: "trace"}, {Key: "empty", Value: []byte{}}}}
	strange = dedup.Message{ID: firm.ID, Topic: "orders", Partition: 3, Offset: 120043, RawTimestamp: 1764300000000000}
	parked  = operate.Stored{Message: firm, State: dedup.Parked, ReceivedAt: clock, At: clock.Add(time.Second),
		Attempts: 2, Reason: "handler_failed", Error: "insert:\nno such account"}
	processed = operate.Stored{Message: strange, State: dedup.Processed, ReceivedAt: clock, At: clock}
	other     = operate.ConflictCopy{Inbox: "shop", Handler: "book", SeenAt: clock.Add(time.Hour), Message: strange}
	entry     = operate.AuditEntry{At: clock, Actor: "ann@desk", Action: "redrive", Why: "mended", Login: "ops"}
	paused    = []dedup.Pause{{Kind: dedup.PausePartition, Topic: "orders", Partition: 3,
		At: clock, Actor: "ann@desk", Why: "moved"}}
	backlog = []operate.Backlog{{Handler: "book", Pending: 2, Failed: 1, Dead: 3,
		Lanes: 2, OldestAt: clock, Capped: true}}
	held = []holds.Hold{{Subject: holds.Partition("orders", 3), Code: holds.CutOff,
		Since: clock, Reason: "ends at 5", Tries: 2}}
	positions = []operate.Position{{Consumer: "billing", Topic: "orders", Partition: 3, Next: 120043, Owner: "host-1",
		AcquiredAt: clock, MovedAt: clock, Fruitless: 1}, {Consumer: "billing", Topic: "orders", Next: -1}}
)

func views() []any {
	listed := []operate.Listed{{Inbox: "shop", Handler: "book", Stored: parked, Status: operate.StatusFailed,
		DueAt: clock.Add(time.Minute), Bytes: 93}, {Inbox: "shop", Handler: "book", Stored: processed,
		Status: operate.StatusProcessed}}
	return append([]any{
		MessageOf(&listed[0], 8), MessagesOf(listed, "d1", Whole), ConflictsOf([]operate.ConflictCopy{other}, "", 0),
		ConflictPairs{[]ConflictPair{ConflictPairOf(&other, &parked), ConflictPairOf(&other, nil)}},
		ExplanationOf(explanation()), BacklogOf(backlog), PausesOf("shop", paused),
		InboxStatusOf("shop", positions, backlog, paused, []operate.ToldHolds{{Consumer: "billing", Owner: "host-1",
			ToldAt: clock, Holds: held}}),
		AuditOf([]operate.AuditRecord{{AuditEntry: entry, Handler: "book", Tenant: "blue", MessageID: firm.ID},
			{AuditEntry: operate.AuditEntry{At: clock}, Subject: "topic orders"}}, "a7"),
		Changed{"redrive", 3, true}, PauseChangedOf("shop", "pause", paused[0], true),
		RerunPreviewOf(&operate.RerunPreview{Messages: 1, First: []operate.RerunMessage{{ID: firm.ID,
			Topic: "orders", Partition: 3, Offset: 120042, ReceivedAt: clock}},
			Missing: []operate.MissingRerun{{ID: firm.ID, Why: "dead"}}}),
	}, aroundTheInbox()...)
}

func aroundTheInbox() []any {
	size := operate.Size{At: clock, Used: 1 << 40, Tables: []operate.TableSize{{Name: "inbox", Rows: 10, Bytes: 8192}},
		Scopes:   []operate.ScopeSize{{Inbox: "shop", Handler: "book", Tenant: "blue", Rows: 10, Share: 0.25}},
		FirstDay: clock, LastDay: clock, IDIndex: operate.IndexSize{Bytes: 128 << 20, Fresh: 64 << 20},
		Growth: operate.Growth{From: clock, To: clock.Add(time.Hour), IDs: 1, IDBytes: 110, InboxBytes: 512}}
	reset := &cluster.Reset{Group: "billing", Topic: "orders", Partitions: []cluster.ResetPartition{{Partition: 3,
		Position: 5, Committed: -1, From: 5, To: 9, Skipped: 4}}}
	plan := &retention.Plan{At: clock, InboxBefore: clock, Days: []operate.InboxDay{{Day: clock, Bytes: 8192}},
		Handlers: []retention.Handler{{Name: "book", Age: time.Hour, Before: clock,
			Refusals: []retention.Refusal{{Text: "orders keeps for ever"}}}, {Name: "ship"}}}
	return []any{
		SizeOf(&size, config.Config{Postgres: config.Postgres{Capacity: 2 << 40}}), process(),
		PartitionsOf(&consumer.Status{State: consumer.Consuming,
			Partitions: []consumer.PartitionStatus{
				{Topic: "orders", Next: 5, Committed: 4, End: 9, HighWatermark: 9, Lag: 4, LagTime: time.Second,
					Held: holds.CutOff, HeldSince: clock},
				{Topic: "orders", Partition: 1, Next: -1, Committed: -1, End: -1, HighWatermark: -1, Lag: -1,
					OpenTransaction: clock}}}),
		standing(), ResetOf(reset, true),
		ReplayOf(&replay.Result{Name: "orders/book", Topic: "orders", Resumed: true, BegunAt: clock, Before: 2,
			Read: 5, Result: handlers.Result{New: 1, Duplicates: 2, Parked: 3, Dead: 4, Conflicts: 5, Buried: 6},
			Ranges:  []operate.ReplayRange{{Partition: 3, From: 0, To: 9, Next: 7}},
			Elapsed: time.Second}, false, true),
		RetentionPlanOf(plan, map[string]int64{"book": 7}),
		RetentionDoneOf(
			&retention.Done{IDs: 7, Dropped: operate.Dropped{Days: 1, Bytes: 8192, Rows: 2, Busy: 1}}, nil),
		FindingsOf([]doctor.Finding{{Check: "kafka.lag", Level: doctor.Warning,
			Checked: true, Seen: "4 wait", Do: "wait"}}),
		ChecksOf([]doctor.Check{{Name: "kafka.lag", About: "what waits"}}),
	}
}

func explanation() *operate.Explanation {
	head := operate.Stored{Message: strange, Attempts: 1, Reason: "handler_failed"}
	return &operate.Explanation{Asked: "order-4711", Inbox: "shop", Now: clock, Sentences: []string{"It waits."},
		Seen: []operate.Sighting{{Inbox: "shop", Handler: "book", Tenant: "blue", FirstSeenAt: clock, Stored: &parked,
			Lane:      &operate.Lane{DueAt: clock, Claims: 1, Ahead: 2, Head: head},
			Conflicts: []operate.ConflictCopy{other}, Audit: []operate.AuditEntry{entry}},
			{Inbox: "shop", Handler: "gone", FirstSeenAt: clock}},
		Unseen: []string{"ship"}, Place: &operate.Place{Topic: "orders", Partition: 3, Offset: 120042,
			Consumers: positions, SearchedFrom: clock}}
}

func process() Status {
	s := StatusOf("v1", &config.Config{Group: "billing", Inbox: "shop"}, clock, clock.Add(time.Minute),
		&consumer.Status{State: consumer.Consuming, Since: clock, Generation: 3, Rebalances: 1, KafkaSince: clock,
			Holds: held, Partitions: []consumer.PartitionStatus{{Lag: 4}, {Lag: -1}},
			Topics: []consumer.TopicStatus{{Name: "orders"}}})
	s.Totals = TotalsOf(handlers.Totals{Batches: 1, Handled: 2, Failed: 3, Duplicates: 4,
		Parked: 5, Dead: 6, Conflicts: 7, Buried: 8})
	s.Window = WindowOf(telemetry.Rates{Over: time.Minute, Handled: 2, Failed: 3, Throughput: 0.5, FailureRatio: 0.6})
	return s
}

func standing() Standing {
	member := cluster.Member{ID: "billing-1", ClientID: "billing", Host: "/10.0.0.1"}
	epoch := int32(4)
	return StandingOf("billing",
		&cluster.Standing{Group: cluster.Group{State: "Stable", Members: []cluster.Member{member}},
			Partitions: []cluster.PartitionStanding{
				{GroupOffset: cluster.GroupOffset{Topic: "orders", Committed: 4, Earliest: 0, Stable: 9, End: 10},
					Position: 5, LeaderEpoch: &epoch, Lag: 4, Member: member, Owner: "host-1"},
				{GroupOffset: cluster.GroupOffset{Topic: "orders", Partition: 1, Committed: -1, Earliest: -1,
					Stable: -1, End: -1}, Position: -1, Lag: -1}}})
}
