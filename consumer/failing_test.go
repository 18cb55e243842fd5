package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

// obedient is a handler that leaves an effect and does what a message's value says: "fail:k" and "panic:k" on its
// first k tries, "permanent", "sql" (a SQL error that it drops), or anything else for success.
type obedient struct {
	mu    sync.Mutex
	tries map[uuid.UUID]int
}

func newObedient() *obedient { return &obedient{tries: map[uuid.UUID]int{}} }

func (o *obedient) count(id uuid.UUID) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tries[id]++
	return o.tries[id]
}

func (o *obedient) Handle(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	try := o.count(m.ID)
	what, times, _ := strings.Cut(string(m.Value), ":")
	k, _ := strconv.Atoi(times)
	switch {
	case what == "fail" && try <= k:
		return fmt.Errorf("told to fail, try %d", try)
	case what == "panic" && try <= k:
		panic("told to")
	case what == "permanent":
		return handlers.Permanent(errors.New("hopeless"))
	case what == "sql":
		_, _ = tx.Exec(ctx, `select 1/0`)
	}
	_, err := tx.Exec(ctx,
		`insert into effects (handler, message_id, key, "offset", "partition") values ('effect', $1, $2, $3, $4)`,
		m.ID, string(m.Key), m.Offset, m.Partition)
	return err
}

// obeying registers an obedient handler with quick retries.
func (s *stage) obeying(h handlers.Handler, retry handlers.Retry) func(*consumer.Config, *handlers.Config) {
	return func(_ *consumer.Config, hc *handlers.Config) {
		hc.LanePoll, hc.Logger = 50*time.Millisecond, logger()
		require.NoError(s.t, hc.Handlers.Add(handlers.Registration{Name: "effect", Topics: []string{s.topic},
			Handler: handlers.Each(h), Retry: retry}))
	}
}

// settled waits until nothing is parked any more. After kills thousands of messages may be, each tried by itself.
func (s *stage) settled() {
	s.t.Helper()
	s.caughtUp()
	deduptest.UntilDone(s.t, time.Minute, "parked messages do not drain", func() (string, bool) {
		n := s.parked()
		return fmt.Sprint(n), n == 0
	})
}

func (s *stage) parked() int { return s.count(`select count(*) from firstseen.parked`) }

func TestAFailingMessageDelaysOnlyItsOwnKey(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		var rs []*kgo.Record
		for i, value := range []string{"fail:3", "ok", "ok"} {
			rs = append(rs, s.record("k1", value, uuid.NewString()),
				s.record(fmt.Sprint("other-", i), "ok", uuid.NewString()))
		}
		consumertest.Produce(t, addr, rs...)
		stop := s.start(s.consumer(s.obeying(newObedient(), handlers.Retry{Base: 300 * time.Millisecond})))
		s.settled()
		stop()
		s.requireOnce(6)
		require.Equal(t, 3, s.count(`select count(*) from effects where key like 'other-%' and seq < (select min(seq) from effects where key = 'k1')`),
			"the other keys came first")
		require.Equal(t, 3, s.count(`select attempts from firstseen.inbox where "offset" = 0`),
			"failed attempts of the message")
		require.Zero(t, s.count(`select count(*) from firstseen.lanes`))
	})
}

func TestWhatCanNotBeHandledEndsInTheDeadLettersAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	var rs []*kgo.Record
	for _, value := range []string{"ok", "fail:99", "ok", "permanent", "ok", "panic:99", "ok", "sql", "ok"} {
		rs = append(rs, s.record("k-"+value, value, uuid.NewString()))
	}
	consumertest.Produce(t, s.addr, rs...)
	stop := s.start(s.consumer(s.obeying(newObedient(), handlers.Retry{Base: time.Millisecond, MaxAttempts: 3})))
	s.settled()
	stop()
	s.requireOnce(5)
	require.Equal(t, 4, s.count(`select count(*) from firstseen.dead_letters`))
	require.Equal(t, 1,
		s.count(`select count(*) from firstseen.dead_letters where reason = 'permanent' and attempts = 1`))
	require.Equal(t, 3,
		s.count(`select count(*) from firstseen.dead_letters where reason = 'attempts_exhausted' and attempts = 3`))
}

func TestAPartitionIsHeldWhileTooManyOfItsMessagesAreParked(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	rs := make([]*kgo.Record, 400)
	for i := range rs {
		rs[i] = s.record(fmt.Sprint("key-", i), "fail:99", uuid.NewString())
	}
	consumertest.Produce(t, s.addr, rs[:40]...)
	var log heard
	var mended atomic.Bool
	handler := handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if !mended.Load() {
			return handlers.Unavailable(errors.New("away"))
		}
		return obey(ctx, tx, m)
	})
	stop := s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		s.obeying(handler, handlers.Retry{Base: 100 * time.Millisecond, Cap: 100 * time.Millisecond})(cc, hc)
		cc.MaxParked, cc.MaxBatch, cc.Logger = 50, 10, log.logger()
	}))
	s.caughtUp()
	consumertest.Produce(t, s.addr, rs[40:]...)
	require.Eventually(t, func() bool { return log.has("too many of the partition's messages are parked") },
		3*time.Minute, 50*time.Millisecond)
	require.LessOrEqual(t, s.count(`select count(*) from firstseen.parked`), 60,
		"no more than a batch beyond the limit")
	s.heldBy(consumer.HeldMaxParked, 0)
	mended.Store(true)
	s.settled()
	s.heldBy("", 0)
	stop()
	s.requireOnce(400)
}
