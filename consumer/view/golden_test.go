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

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/consumer/retention"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
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
	job       = operate.Job{ID: firm.ID, Inbox: "shop", Kind: operate.JobRedrive, FixedAt: clock, Login: "ops", CreatedAt: clock,
		Filter: operate.Filter{Topic: "orders", Handler: "book", Tenant: "blue", Reason: "permanent", Key: []byte{0xff},
			From: clock, To: clock.Add(time.Hour), IDs: []uuid.UUID{firm.ID}},
		By: operate.By{Actor: "ann@desk", Why: "mended"}, Expected: 10_000, More: true, State: operate.JobDone, Done: 10_500,
		Skipped: 2, Failed: 1, Error: "refused", WorkedAt: clock, Worker: "host-1", FinishedAt: clock}
	replaying = operate.ReplayJob{ReplayAsk: operate.ReplayAsk{Topic: "orders", From: "earliest", To: "2026-03-01T04:05:06.12Z",
		Partitions: []int32{0, 3}, Rate: 1000, SkipLost: true}, Consumer: "replay/billing/" + firm.ID.String(),
		Counts: operate.ReplayCounts{New: 1, Duplicates: 2, Conflicts: 3, Parked: 4, Dead: 5, Buried: 6}}
	paused = []dedup.Pause{{Kind: dedup.PausePartition, Topic: "orders", Partition: 3,
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
		MessageOf(&listed[0], Look{Limit: 8}), MessagesOf(listed, "d1", Look{Limit: Whole}), ConflictsOf([]operate.ConflictCopy{other}, "", Look{}),
		ConflictPairs{[]ConflictPair{ConflictPairOf(&other, &parked, Look{Limit: Whole}), ConflictPairOf(&other, nil, Look{Limit: Whole})}},
		ExplanationOf(explanation(), nil), BacklogOf(backlog), PausesOf("shop", paused),
		ErrorGroupsOf([]operate.ErrorGroup{{Handler: "book", Reason: "handler_failed", Error: "no account #", Count: 7,
			OldestAt: clock, NewestAt: clock.Add(time.Hour), NextAt: clock.Add(2 * time.Hour), Example: firm.ID},
			{Handler: "ship", Count: 1, OldestAt: clock, NewestAt: clock}}, true, "", nil),
		OutboxBacklogOf([]operate.OutboxBacklog{{Topic: "events", Pending: 2, Failed: 1, Delayed: 4, Dead: 3, OldestAt: clock,
			Capped: true}, {Topic: "mail"}}),
		PositionsOf(positions, 1, []operate.ToldHolds{{Consumer: "billing", Owner: "host-1", ToldAt: clock, Holds: held, Stale: true}}),
		InboxStatusOf("shop", positions, backlog, paused, []operate.ToldHolds{{Consumer: "billing", Owner: "host-1",
			ToldAt: clock, Holds: held}}, sent()),
		AuditOf([]operate.AuditRecord{{AuditEntry: entry, Handler: "book", Tenant: "blue", MessageID: firm.ID},
			{AuditEntry: operate.AuditEntry{At: clock}, Subject: "topic orders"}}, "a7"),
		UnmaskedOf(&operate.Unmasked{Seen: []operate.Sighting{{Inbox: "shop", Handler: "book", Stored: &parked,
			Conflicts: []operate.ConflictCopy{other}}}}, Look{Limit: Whole}), Changed{"redrive", 3, true}, Access{"write token", true}, JobPreviewOf(operate.JobRedrive, job.Filter,
			operate.JobPreview{Messages: 3, WithoutID: 1, More: true, Moment: "1772341506120000.740:742:741"}, nil), JobOf(&job, nil),
		*JobOf(&operate.Job{Kind: operate.JobReplay, Replay: &replaying}, nil).Replay,
		ReplayPlan{Replay: ReplayOf(&replay.Result{Name: "x", Topic: "orders", Ranges: []operate.ReplayRange{{Partition: 3, To: 9, Next: 5}},
			Read: 5, Result: handlers.Result{New: 5}}, true, false), Ask: ReplayAskOf(&operate.ReplayAsk{From: "earliest", To: "latest"}),
			Forgets: true, At: &clock},
		RerunPlanOf(&operate.RerunPlan{RerunPreview: operate.RerunPreview{Messages: 1, First: []operate.RerunMessage{{ID: firm.ID,
			Topic: "orders", Offset: 7, ReceivedAt: clock}}, Missing: []operate.MissingRerun{{ID: firm.ID, Why: "dead"}}},
			Filter: operate.RerunFilter{Filter: operate.Filter{Handler: "book", Topic: "orders", From: clock},
				Places: &operate.PlaceRange{Partition: 3, From: 5, To: 9}, Ordering: dedup.OrderByKey}, Set: "1-0f"}, nil),
		JobsOf([]operate.Job{{ID: firm.ID, Inbox: "outbox", Kind: operate.JobDiscard, By: operate.By{Actor: "ann", Why: "spam"},
			Login: "ops", CreatedAt: clock, FixedAt: clock, State: operate.JobQueued}}, "j7", nil), PauseChangedOf("shop", "pause", paused[0], true),
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
			Refusals: []retention.Refusal{{Text: "orders keeps for ever"}}}, {Name: "ship"}},
		Destinations: []retention.Handler{{Name: "events", Age: time.Hour, Before: clock}}}
	worst := "warning"
	return []any{
		Findings{&worst, []Finding{{"kafka.lag", "warning", true, "4 wait", "Wait."}, {"ids.missing", "ok", true, "none", ""}},
			Moment(clock), nil},
		SizeOf(&size, 2<<40, 0, 0), process(),
		History{clock.UTC(), 10, []Sample{{At: clock.UTC(), State: "consuming", Lag: 4, Oldest: 1.5, Totals: Totals{Handled: 9},
			Topics: []TopicSample{{"orders", 4, 1.5}}}}},
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
		RetentionPlanOf(plan, RetentionEstimate{map[string]int64{"book": 7}, map[string]int64{"events": 9}}, 3, true),
		RetentionDoneOf(
			&retention.Done{IDs: 7, OutboxIDs: 9, Answers: 3,
				Dropped: operate.Dropped{Days: 1, Bytes: 8192, Rows: 2, Busy: 1}}, nil),
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
			Consumers: positions, SearchedFrom: clock},
		Requests: []operate.Request{{Tenant: "blue", Scope: "c1", Route: "POST /orders", State: operate.RequestAnswered,
			Status: 201, Fence: 7, CreatedAt: clock, ExpiresAt: clock.Add(time.Hour)},
			{Route: "POST /pay", State: operate.RequestAbandoned, Fence: 8, LeaseUntil: clock, CreatedAt: clock,
				ExpiresAt: clock.Add(time.Hour)}},
		Waiting: []operate.Listed{{Inbox: "outbox", Stored: operate.Stored{Message: strange, State: dedup.Parked},
			Status: operate.StatusPending, DueAt: clock}},
		Caused:      []operate.Listed{{Inbox: "outbox", Handler: "events", Stored: processed, Status: operate.StatusProcessed}},
		CausedUntil: clock}
}

func process() Status {
	s := StatusOf(clock, clock.Add(time.Minute),
		&consumer.Status{State: consumer.Consuming, Since: clock, Generation: 3, Rebalances: 1, KafkaSince: clock,
			Holds: held, Partitions: []consumer.PartitionStatus{{Lag: 4}, {Lag: -1}},
			Topics: []consumer.TopicStatus{{Name: "orders"}}})
	s.Version, s.Group, s.Inbox = "v1", "billing", "shop"
	s.Totals = TotalsOf(handlers.Totals{Batches: 1, Handled: 2, Failed: 3, Duplicates: 4,
		Parked: 5, Dead: 6, Conflicts: 7, Buried: 8})
	rates := handlers.Rates{Over: time.Minute, Handled: 2, Failed: 3, Throughput: 0.5, FailureRatio: 0.6}
	s.Window = WindowOf(rates)
	out := sent().In(func(string) handlers.Totals { return handlers.Totals{Handled: 9, Failed: 1} }, rates)
	s.Outbox = &out
	return s
}

// sent has two topics of one destination, another destination that waits, and a topic that none has.
func sent() Outbox {
	topic := func(name string, n int64, oldest time.Time) operate.OutboxTopic {
		return operate.OutboxTopic{OutboxBacklog: operate.OutboxBacklog{Topic: name, Pending: n, Failed: 2 * n, Delayed: 3 * n,
			Dead: 4 * n, OldestAt: oldest, Capped: n == 2}, Sent: 5 * n}
	}
	return OutboxOf([]outbox.Destination{{Name: "events", Topics: []string{"parcels", "invoices", "none"}},
		{Name: "crm", Topics: []string{"customers"}}},
		[]operate.OutboxTopic{topic("customers", 1, time.Time{}), topic("invoices", 1, clock.Add(time.Minute)),
			topic("parcels", 2, clock), topic("slip", 1, clock)}, clock,
		[]holds.Hold{{Subject: holds.Subject{Kind: holds.HandlerKind, Name: "crm"}, Code: holds.Handler, Since: clock.Add(time.Second),
			Reason: "later"}, {Subject: holds.Subject{Kind: holds.HandlerKind, Name: "crm"}, Code: holds.Paused, Since: clock,
			Reason: "by ann"}, {Subject: holds.Subject{Kind: holds.TopicKind, Name: "crm"}, Code: holds.NoSender}})
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
