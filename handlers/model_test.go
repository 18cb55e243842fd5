package handlers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

const modelAttempts = 3

// model is what must become of a topic's messages, said as simply as can be.
type model struct {
	t *rapid.T
	b *bench
	p *Processor

	topic    string
	log      []dedup.Message // of the partition, copies included
	next     int             // in the log
	position *dedup.Position
	wrap     func(Handler) BatchHandler
	sick     map[uuid.UUID]string // what the handler does with a message
	crashIn  int                  // handler calls until the process ends; 0: it does not
	crash    context.CancelFunc
	apart    int                  // the pace of a process that starts
	paused   map[dedup.Pause]bool // in Postgres
	parks    bool                 // the process has heard that its handler is paused

	states   map[uuid.UUID]string // inbox, dead or parked
	attempts map[uuid.UUID]int
	lanes    map[string][]dedup.Message // unfinished, by key
}

// Handle does what the message's sickness says now.
func (m *model) Handle(ctx context.Context, tx pgx.Tx, msg dedup.Message) error {
	if m.crashIn > 0 {
		if m.crashIn--; m.crashIn == 0 {
			m.crash()
		}
	}
	_, err := tx.Exec(ctx, `insert into effects (handler, message_id, key, "offset") values ($1, $2, $3, $4)`,
		msg.Topic, msg.ID, string(msg.Key), msg.Offset)
	switch sick := m.sick[msg.ID]; {
	case err != nil:
		return err
	case sick == "panic":
		panic(errTold)
	case sick == "permanent":
		return Permanent(errTold)
	case sick == "unavailable":
		return Unavailable(errTold)
	case sick == "fail":
		return errTold
	case sick != "":
		return (&obedient{}).misbehave(ctx, tx, sick)
	}
	return nil
}

// queue is Handle for a handler that only queues.
func (m *model) queue(q *pgx.Batch, msg dedup.Message) error {
	if m.crashIn > 0 {
		if m.crashIn--; m.crashIn == 0 {
			m.crash()
		}
	}
	insert := func() {
		q.Queue(`insert into effects (handler, message_id, key, "offset") values ($1, $2, $3, $4)`,
			msg.Topic, msg.ID, string(msg.Key), msg.Offset)
	}
	insert()
	switch sick := m.sick[msg.ID]; sick {
	case "fail":
		q.Queue(`select 1 / $1::int`, 0)
		insert()
	case "panic":
		panic(errTold)
	case "permanent":
		return Permanent(errTold)
	case "unavailable":
		return Unavailable(errTold)
	case "sql":
		q.Queue(`select 1 / 0 from effects`)
	case "rows":
		q.Queue(`select $1::int`, "no number")
	case "end":
		q.Queue(`rollback`)
	case "eof":
		return io.ErrUnexpectedEOF
	case "dial":
		return dial(context.Background())
	}
	return nil
}

// queued is a kind of handler, as Each is.
func queued(h Handler) BatchHandler { return Queue(QueuedFunc(h.(*model).queue)) }

// sicknesses are what a message can come with; outages have tests of their own.
var sicknesses = []string{"", "", "", "", "", "fail", "panic", "permanent", "unavailable", "sql", "rows", "end", "eof"}

func isUnavailable(sick string) bool { return sick == "unavailable" }

func (m *model) start() {
	registry := &Registry{}
	require.NoError(m.t, registry.Add(Registration{Name: m.topic, Topics: []string{m.topic}, Handler: m.wrap(m),
		Retry: Retry{Base: 1, Cap: 1, MaxAttempts: modelAttempts}}))
	var err error
	m.p, err = NewProcessor(Config{Store: m.b.store, Handlers: registry, Logger: quiet()})
	require.NoError(m.t, err)
	failApart(registry, m.apart)
	m.hear()
	m.position, err = m.b.store.Acquire(context.Background(), "group", m.topic, 0, "model")
	require.NoError(m.t, err)
	if !m.position.Known {
		require.NoError(m.t, m.b.store.Reposition(context.Background(), m.position, 0, uuid.Nil, nil))
	}
	require.EqualValues(m.t, m.next, m.position.Next, "the position")
}

// produce appends messages, some of them copies of earlier ones.
func (m *model) produce(t *rapid.T) {
	for range rapid.IntRange(1, 8).Draw(t, "messages") {
		msg := dedup.Message{Topic: m.topic, ID: uuid.New(), Offset: int64(len(m.log))}
		if key := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "key"); key != "" {
			msg.Key = []byte(key)
		}
		if len(m.log) > 0 && rapid.IntRange(0, 5).Draw(t, "copy") == 0 {
			original := rapid.SampledFrom(m.log).Draw(t, "of")
			msg.ID, msg.Key = original.ID, original.Key
		} else {
			m.sick[msg.ID] = rapid.SampledFrom(sicknesses).Draw(t, "sickness")
		}
		m.log = append(m.log, msg)
	}
}

// arm has the process end after some handler calls, sometimes.
func (m *model) arm(t *rapid.T) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	m.crash = cancel
	m.crashIn = max(0, rapid.IntRange(-8, 6).Draw(t, "crash in"))
	return ctx
}

func (m *model) process(t *rapid.T) {
	end := min(len(m.log), m.next+rapid.IntRange(1, 12).Draw(t, "batch"))
	ms := m.log[m.next:end]
	if len(ms) == 0 {
		return
	}
	ctx := m.arm(t)
	defer m.crash()
	_, err := m.p.Process(ctx, Batch{Position: m.position, Next: int64(end), Messages: ms})
	if ctx.Err() != nil || err != nil {
		require.Error(t, ctx.Err(), "an error without a crash: %v", err)
		require.Error(t, err)
		m.start()
		return
	}
	m.next = end
	for _, msg := range ms {
		if m.states[msg.ID] == "" {
			m.arrive(msg)
		}
	}
}

func laneKey(msg dedup.Message) string {
	if msg.Key == nil {
		return msg.ID.String()
	}
	return string(msg.Key)
}

func (m *model) arrive(msg dedup.Message) {
	key := laneKey(msg)
	m.states[msg.ID] = "parked"
	if m.parks || len(m.lanes[key]) > 0 || !m.settle(msg) {
		m.lanes[key] = append(m.lanes[key], msg)
	}
}

// settle says what one call makes of a message, and whether it is done with.
func (m *model) settle(msg dedup.Message) bool {
	switch sick := m.sick[msg.ID]; {
	case sick == "":
		m.states[msg.ID] = "inbox"
		return true
	case isUnavailable(sick):
		return false
	default:
		m.attempts[msg.ID]++
		if sick != "permanent" && m.attempts[msg.ID] < modelAttempts {
			return false
		}
		m.states[msg.ID] = "dead"
		return true
	}
}

func (m *model) work(t *rapid.T) {
	ctx := m.arm(t)
	defer m.crash()
	m.b.exec(`update firstseen.lanes set due_at = now() - interval '1 s' where topic = $1`, m.topic)
	_, err := m.p.workLanes(ctx, m.p.attached()[0])
	if ctx.Err() != nil || err != nil {
		require.Error(t, ctx.Err(), "an error without a crash: %v", err)
		m.start()
		return
	}
	if len(m.paused) > 0 { // whether the process has heard of it or not
		return
	}
	each := laneBatch / max(1, len(m.lanes)) // so many messages of a lane go in one transaction
	for key, lane := range m.lanes {
		for n := 0; n < each && len(lane) > 0 && m.settle(lane[0]); n++ {
			lane = lane[1:]
		}
		m.lanes[key] = lane
	}
	maps.DeleteFunc(m.lanes, func(_ string, lane []dedup.Message) bool { return len(lane) == 0 })
}

// rebalance gives the partition to another owner. What the former one still has in hand changes nothing.
func (m *model) rebalance(t *rapid.T) {
	former, position := m.p, *m.position
	m.start()
	if m.next == len(m.log) {
		return
	}
	m.crashIn = 0
	_, err := former.Process(context.Background(),
		Batch{Position: &position, Next: int64(m.next + 1), Messages: m.log[m.next : m.next+1]})
	require.ErrorIs(t, err, dedup.ErrFenced)
}

// pause pauses something, or resumes it. The process hears of it now, or when it starts anew, or later.
func (m *model) pause(t *rapid.T) {
	what := rapid.SampledFrom([]dedup.Pause{{Kind: dedup.PauseHandler, Handler: m.topic},
		{Kind: dedup.PauseTopic, Topic: m.topic}, {Kind: dedup.PausePartition, Topic: m.topic}}).Draw(t, "what")
	change := operate.Of(m.b.store).Pause
	if m.paused[what] {
		delete(m.paused, what)
		change = operate.Of(m.b.store).Resume
	} else {
		m.paused[what] = true
	}
	changed, err := change(context.Background(), what, operate.By{Actor: "model", Why: "test"})
	require.NoError(m.t, err)
	require.True(m.t, changed)
	if rapid.Bool().Draw(t, "heard") {
		m.hear()
	}
}

// hear has the process look up what is paused.
func (m *model) hear() {
	require.NoError(m.t, m.p.LookUpPauses(context.Background()))
	m.parks = m.paused[dedup.Pause{Kind: dedup.PauseHandler, Handler: m.topic}]
}

func (m *model) heal(t *rapid.T) {
	if len(m.log) > 0 {
		m.sick[rapid.SampledFrom(m.log).Draw(t, "healed").ID] = ""
	}
}

// check compares the model with the tables.
func (m *model) check(t *rapid.T) {
	rows, err := m.b.pool.Query(context.Background(), `
		select message_id, state, attempts from (
			select message_id, 'inbox' as state, attempts, topic from firstseen.inbox
			union all select message_id, 'parked', attempts, topic from firstseen.parked
			union all select message_id, 'dead', attempts, topic from firstseen.dead_letters) m
		where topic = $1`, m.topic)
	require.NoError(t, err)
	found := map[uuid.UUID]string{}
	var id uuid.UUID
	var state string
	var attempts int
	_, err = pgx.ForEachRow(rows, []any{&id, &state, &attempts}, func() error {
		if found[id] != "" {
			return fmt.Errorf("message %s is in two places", id)
		}
		if found[id] = state; state != "inbox" && attempts != m.attempts[id] {
			return fmt.Errorf("%s message %s, %s, has %d attempts, not %d",
				state, id, m.sick[id], attempts, m.attempts[id])
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, m.states, found)
	require.Equal(t, len(m.lanes),
		m.b.count(`select count(*) from firstseen.lanes where topic = $1`, m.topic), "lanes")
	require.Zero(t, m.b.count(`select count(*) from firstseen.parked p where topic = $1
		and not exists (select from firstseen.lanes l where l.scope_id = p.scope_id and l.lane = p.lane)`, m.topic))
	require.Equal(t, len(slices.DeleteFunc(slices.Collect(maps.Values(found)),
		func(s string) bool { return s != "inbox" })),
		m.b.count(`select count(*) from effects where handler = $1`, m.topic), "effects")
}

// finish heals everything and has it handled.
func (m *model) finish(t *rapid.T) {
	for id := range m.sick {
		m.sick[id] = ""
	}
	m.crashIn = 0
	for what := range m.paused {
		_, err := operate.Of(m.b.store).Resume(context.Background(), what, operate.By{Actor: "model", Why: "test"})
		require.NoError(m.t, err)
	}
	clear(m.paused)
	m.hear()
	for m.next < len(m.log) {
		end := min(len(m.log), m.next+5)
		_, err := m.p.Process(context.Background(),
			Batch{Position: m.position, Next: int64(end), Messages: m.log[m.next:end]})
		require.NoError(t, err)
		for _, msg := range m.log[m.next:end] {
			if m.states[msg.ID] == "" {
				m.arrive(msg)
			}
		}
		m.next = end
	}
	for tries := 0; m.b.count(`select count(*) from firstseen.lanes where topic = $1`, m.topic) > 0; tries++ {
		require.Less(t, tries, 100)
		m.b.exec(`update firstseen.lanes set due_at = now() - interval '1 s' where topic = $1`, m.topic)
		_, err := m.p.workLanes(context.Background(), m.p.attached()[0])
		require.NoError(t, err)
	}
	clear(m.lanes)
	for id, state := range m.states {
		if state == "parked" {
			m.states[id] = "inbox"
		}
	}
	m.check(t)
	require.Zero(t,
		m.b.count(`select count(*) from (select "offset" < lag("offset") over (partition by key order by seq) as back
		from effects where handler = $1 and key <> '') e where back`,
			m.topic), "effects out of order within their key")
}

func TestModelOfBatchesLanesAndCrashes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	topics := 0
	rapid.Check(t, func(rt *rapid.T) {
		topics++
		m := &model{t: rt, b: b, topic: fmt.Sprint("model-", topics),
			wrap:  rapid.SampledFrom([]func(Handler) BatchHandler{Each, opaque, queued}).Draw(rt, "kind"),
			apart: rapid.IntRange(0, 12).Draw(rt, "apart"),
			sick:  map[uuid.UUID]string{}, states: map[uuid.UUID]string{}, attempts: map[uuid.UUID]int{},
			lanes: map[string][]dedup.Message{}, paused: map[dedup.Pause]bool{}}
		m.start()
		rt.Repeat(map[string]func(*rapid.T){
			"produce": m.produce, "process": m.process, "work": m.work, "heal": m.heal, "rebalance": m.rebalance,
			"pause": m.pause, "": m.check,
		})
		m.finish(rt)
	})
	b.requireWhole(b.count(`select count(*) from firstseen.message_dedup`))
	require.Zero(t, b.count(`select count(*) from firstseen.lanes`))
}
