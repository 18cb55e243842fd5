package handlers_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

var operator = operate.By{Actor: "night shift", Why: "test"}

func (s *stage) pause(p dedup.Pause) {
	s.t.Helper()
	changed, err := operate.Of(s.store).Pause(context.Background(), p, operator)
	require.NoError(s.t, err)
	require.True(s.t, changed)
}

func (s *stage) resume(p dedup.Pause) {
	s.t.Helper()
	changed, err := operate.Of(s.store).Resume(context.Background(), p, operator)
	require.NoError(s.t, err)
	require.True(s.t, changed)
}

func TestPausedHandlersMessagesWaitInTheirLanesAndItsSiblingGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.cfg.LanePoll, s.cfg.PausePoll = 10*time.Millisecond, 10*time.Millisecond
	s.register("paused", effect("paused"))
	s.register("sibling", effect("sibling"))
	what := dedup.Pause{Kind: dedup.PauseHandler, Handler: "paused"}
	s.pause(what)
	p := s.processor()
	require.NoError(t, p.LookUpPauses(t.Context()))
	position := s.position("orders")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.RunLanes(ctx) }()
	defer func() { cancel(); <-ended }()

	process := func() {
		ms := messages(position, newIDs(4)...)
		ms[0].Key, ms[3].Key = []byte("other"), nil
		_, err := p.Process(t.Context(), handlers.Batch{Position: position, Next: position.Next + 4, Messages: ms})
		require.NoError(t, err)
	}
	process()
	process()
	require.Equal(t, 8, s.effects("sibling"))
	require.Equal(t, 8, s.count(`select count(*) from firstseen.parked where attempts = 0 and reason is null`))

	s.resume(what)
	require.Eventually(t, func() bool { return s.effects("paused") == 8 }, 3*time.Minute, 5*time.Millisecond)
	require.Zero(t, s.count(`select count(*) from firstseen.parked`))
	require.Zero(t, s.count(`select count(*) from firstseen.inbox where attempts > 0`))
	require.Zero(t, s.count(`select count(*) from (select e."offset" < lag(e."offset") over (partition by i.key order by e.seq) as back
		from effects e join firstseen.inbox i using (message_id) join firstseen.scopes c using (scope_id)
		where e.handler = 'paused' and c.handler = 'paused' and i.key is not null) e where back`),
		"effects out of order within their key")

	process() // not parked any more
	require.Equal(t, 12, s.effects("paused"))
	require.Zero(t, s.count(`select count(*) from firstseen.parked`))
	require.Len(t, s.log.lines(slog.LevelWarn), 1)
	require.Contains(t, s.log.lines(slog.LevelWarn)[0], `what="handler paused" actor="night shift" why=test`)
	require.Contains(t, s.log.lines(slog.LevelInfo)[0], `what="handler paused"`)
}

func TestReplayedMessagesAreHandledThoughTheirHandlerIsPaused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("paused", effect("paused"))
	s.pause(dedup.Pause{Kind: dedup.PauseHandler, Handler: "paused"})
	p := s.processor()
	require.NoError(t, p.LookUpPauses(t.Context()))
	position := s.position("orders")
	r, err := p.Process(t.Context(), handlers.Batch{Position: position, Next: 4,
		Messages: messages(position, newIDs(4)...), Replayed: true})
	require.NoError(t, err)
	require.Equal(t, handlers.Result{New: 4}, r, "it is how a new handler is filled")
	require.Equal(t, 4, s.effects("paused"))
}

func TestPausesAreKnownByTopicPartitionAndHandler(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", effect("h"))
	p := s.processor()
	paused := func(topic string, partition int32) bool {
		require.NoError(t, p.LookUpPauses(t.Context()))
		is, _ := p.Paused(topic, partition)
		return is
	}
	require.False(t, paused("orders", 1))
	_, changed := p.Paused("orders", 1)
	for _, what := range []dedup.Pause{{Kind: dedup.PauseTopic, Topic: "orders"},
		{Kind: dedup.PausePartition, Topic: "orders", Partition: 1}} {
		s.pause(what)
		require.True(t, paused("orders", 1), what)
		require.Equal(t, what.Kind == dedup.PauseTopic, paused("orders", 2), what)
		require.False(t, paused("returns", 1), what)
		require.Len(t, p.Pauses(), 1)
		s.resume(what)
		require.False(t, paused("orders", 1), what)
	}
	s.pause(dedup.Pause{Kind: dedup.PauseHandler, Handler: "orders"})
	require.False(t, paused("orders", 1), "a handler of that name")
	<-changed
	_, changed = p.Paused("orders", 1)
	require.NoError(t, p.LookUpPauses(t.Context()))
	select {
	case <-changed:
		t.Fatal("nothing has changed")
	default:
	}
}

func TestLastKnownPausesStayWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.register("h", effect("h"))
	p := s.processor()
	s.pause(dedup.Pause{Kind: dedup.PauseTopic, Topic: "orders"})
	require.NoError(t, p.LookUpPauses(t.Context()))
	s.pool.Close()
	require.Error(t, p.LookUpPauses(t.Context()))
	is, _ := p.Paused("orders", 0)
	require.True(t, is)
}
