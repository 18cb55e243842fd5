package handlers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func (b *bench) id(sql string) (id uuid.UUID) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(context.Background(), sql).Scan(&id))
	return id
}

// runLanes has processors work on lanes until stop is called.
func runLanes(ps ...*Processor) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, p := range ps {
		running.Go(func() { p.RunLanes(ctx) })
	}
	return func() { cancel(); running.Wait() }
}

func TestLaterMessagesOfAKeyWaitForOneInBackoff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := newObedient("h")
	p := b.processor(nil, Registration{Name: "h", Handler: Each(h), Retry: Retry{Base: time.Hour, Cap: time.Hour}})
	b.process(p, b.messages("k1=fail:3", "k1=ok", "k2=ok"))
	require.Equal(t, Result{New: 1, Parked: 1}, b.process(p, b.messages("k1=ok", "k2=ok")))
	for range 3 { // each in a process of its own
		b.exec(`update firstseen.lanes set due_at = now()`)
		p = b.processor(nil, Registration{Name: "h", Handler: Each(h), Retry: Retry{Base: time.Hour, Cap: time.Hour}})
		b.position = b.acquire(0)
		b.process(p, b.messages("k1=ok"))
		_, err := p.workLanes(t.Context(), p.attached()[0])
		require.NoError(t, err)
	}
	b.drain(p)
	b.requireOnce(8)
	b.requireWhole(8)
}

func TestALaneWorkersHandlerDelaysNoBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inside, release := make(chan struct{}), make(chan struct{})
	h := newObedient("h")
	p := b.processor(nil, Registration{Name: "h",
		Handler: Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			if string(m.Value) == "slow" {
				if h.try(m.ID) == 1 {
					return errTold
				}
				close(inside)
				<-release
			}
			return h.Handle(ctx, tx, m)
		}))})
	b.process(p, b.messages("k=slow"))
	var working sync.WaitGroup
	working.Go(func() { b.drain(p) })
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	result, err := p.Process(ctx, b.batch(b.messages("k=ok", "j=ok")))
	close(release)
	require.NoError(t, err)
	require.Equal(t, Result{New: 1, Parked: 1}, result)
	working.Wait()
	b.requireOnce(3)
	b.requireWhole(3)
}

func TestAnotherGroupOfTheInboxFindsTheLanes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h")),
		Retry: Retry{Base: time.Hour, Cap: time.Hour}})
	b.process(p, b.messages("k=fail:1"))
	other, err := b.store.Acquire(t.Context(), "renamed group", benchTopic, 0, "test")
	require.NoError(t, err)
	require.NoError(t, b.store.Reposition(t.Context(), other, 1, uuid.Nil, nil))
	b.position = other
	require.Equal(t, Result{Parked: 1}, b.process(p, b.messages("k=ok")))
}

func TestAttemptsCountAfterTheOrderingHasChanged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	reg := Registration{Name: "h", Handler: Each(newObedient("h")),
		Retry: Retry{Base: time.Microsecond, Cap: time.Microsecond, MaxAttempts: 3}}
	b.process(b.processor(nil, reg), b.messages("k=fail:9", "k=ok"))
	reg.Ordering = dedup.OrderByPartition
	b.drain(b.processor(nil, reg))
	b.requireOnce(1)
	require.Equal(t, 3, b.count(`select attempts from firstseen.dead_letters`))
}

func TestAFailureThatCostsTheLaneWorkersTransactionIsKept(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"end", "rows", "ignore"} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			release := make(chan struct{})
			defer close(release)
			h := newObedient("h")
			p := b.processor(func(c *Config) { c.HandlerTimeout, c.AbandonAfter = 2*time.Second, 50*time.Millisecond },
				Registration{Name: "h", Retry: Retry{Base: time.Microsecond, Cap: time.Microsecond, MaxAttempts: 3},
					Handler: Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
						if try := h.try(m.ID); try == 1 {
							return errTold
						} else if string(m.Value) == "ignore" {
							<-release
						}
						return h.Handle(ctx, tx, m)
					}))})
			b.process(p, b.messages("k="+what, "j=ok", "k=ok", "i=ok"))
			b.due()
			n, err := p.workLanes(t.Context(), p.attached()[0])
			require.NoError(t, err)
			require.Equal(t, 3, n)
			require.Equal(t, "0/2 2/0",
				b.text(`select string_agg("offset" || '/' || attempts, ' ' order by "offset") from firstseen.parked`))
			claims := 0
			if what == "ignore" {
				claims = 1 // it is tried by itself from now on
			}
			require.Equal(t, claims, b.count(`select max(claims) from firstseen.lanes`))
			b.drain(p)
			b.requireWhole(4)
			b.requireOnce(3)
			require.Equal(t, 3, b.count(`select attempts from firstseen.dead_letters`))
		})
	}
}

func TestALaneIsWorkedOnInPortionsOfBoundedSize(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	most, h := 0, newObedient("h")
	p := b.processor(nil, Registration{Name: "h", Retry: Retry{Base: time.Hour, Cap: time.Hour},
		Handler: BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
			size := 0
			for i := range ms {
				size += ms[i].Size()
			}
			most = max(most, size)
			return Each(h).HandleBatch(ctx, tx, ms)
		})})
	b.process(p, b.messages("k=fail:1"))
	for range 12 {
		ms := b.messages("k=ok", "k=ok")
		for i := range ms {
			ms[i].Value = make([]byte, 4<<20)
		}
		b.process(p, ms)
	}
	b.exec(`update firstseen.lanes set due_at = now()`)
	b.drain(p)
	require.Greater(t, most, 12<<20)
	require.LessOrEqual(t, most, 16<<20)
	b.requireOnce(25)
}

func TestOneHandlersTroubleDoesNotStopAnothersLanes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	trouble := false
	bad := HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if !trouble {
			return errTold
		}
		_, err := tx.Exec(ctx, `do $$ begin raise exception 'no' using errcode = '53100'; end $$`)
		return err
	})
	p := b.processor(nil, Registration{Name: "a", Handler: Each(bad)},
		Registration{Name: "b", Handler: Each(newObedient("b"))})
	b.process(p, b.messages("k=fail:1"))
	trouble = true
	stop := runLanes(p)
	defer stop()
	require.Eventually(t, func() bool { return b.count(`select count(*) from effects`) == 1 }, 3*time.Minute,
		10*time.Millisecond)
	require.Zero(t, b.count(
		`select count(*) from firstseen.inbox i join firstseen.scopes s using (scope_id) where s.handler = 'a'`))
}

func TestSuspectsAttemptIsCountedBeforeTheCallAndOnlyADeathKeepsIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := newObedient("h")
	counted := -1
	var fail error
	p := b.processor(nil, Registration{Name: "h",
		Retry: Retry{Base: time.Microsecond, Cap: time.Microsecond, MaxAttempts: 5},
		Handler: Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			if h.try(m.ID) == 1 {
				return errTold
			}
			counted = b.count(`select attempts from firstseen.parked`)
			if fail != nil {
				return fail
			}
			return h.Handle(ctx, tx, m)
		}))})
	b.process(p, b.messages("k=ok"))
	claim := func() {
		b.exec(`update firstseen.lanes set due_at = now() - interval '1 s', claims = 1`)
		_, _ = p.workLanes(t.Context(), p.attached()[0])
	}
	fail = Unavailable(errTold)
	claim()
	require.Equal(t, 2, counted)
	require.Equal(t, "1 unavailable 0", b.text(
		`select attempts || ' ' || reason || ' ' || claims from firstseen.parked join firstseen.lanes using (lane)`))

	_, err := b.pool.Exec(t.Context(), `update firstseen.parked set attempts = attempts + 4, reason = 'killed'`)
	require.NoError(t, err) // it died in four calls: that is as often as it may
	fail = nil
	claim()
	require.Equal(t, "killed 5", b.text(`select reason || ' ' || attempts from firstseen.dead_letters`))
	b.requireWhole(1)
	require.Zero(t, b.count(`select count(*) from firstseen.lanes`))
}

// claimedTwice parks a message, and has its lane claimed by one worker after the other.
func (b *bench) claimedTwice() (p *Processor, lost, held []dedup.Claim) {
	b.t.Helper()
	p = b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h"))})
	b.process(p, b.messages("k=fail:1"))
	b.due()
	lost, err := b.store.ClaimLanes(b.t.Context(), "h", 1, 0)
	require.NoError(b.t, err)
	held, err = b.store.ClaimLanes(b.t.Context(), "h", 1, time.Minute)
	require.NoError(b.t, err)
	require.Len(b.t, held, 1)
	return p, lost, held
}

func TestALostClaimCountsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p, claims, _ := b.claimedTwice()
	_, _, _, err := b.store.Announce(t.Context(), claims[0], uuid.New(), time.Minute, 10, false)
	require.ErrorIs(t, err, dedup.ErrNotClaimed)
	require.NoError(t, p.workApart(t.Context(), claims))
	require.Equal(t, 1, b.count(`select attempts from firstseen.parked`))
}

func TestALaneThatIsTakenAwayByARedriveIsSuspectedOfNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p, _, suspect := b.claimedTwice()
	require.Greater(t, suspect[0].Times, mostClaims)
	attempt := uuid.New()
	_, attempts, answer, err := b.store.Announce(t.Context(), suspect[0], attempt, time.Minute, 10, false)
	require.NoError(t, err)
	require.Equal(t, 2, attempts)
	require.Equal(t, dedup.Counted, answer)
	b.exec(`select firstseen.wake_lanes(array[scope_id], array[lane], 0) from firstseen.lanes`)

	next, err := b.store.ClaimLanes(t.Context(), "h", 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, next[0].Times)
	_, _, _, err = b.store.Announce(t.Context(), suspect[0], uuid.New(), time.Minute, 10, false)
	require.ErrorIs(t, err, dedup.ErrNotClaimed)
	for range 2 {
		require.NoError(t, b.store.CancelAttempt(t.Context(), suspect[0], attempt))
	}
	require.Equal(t, 1, b.count(`select attempts from firstseen.parked`), "the process lived")
	require.NoError(t, p.workTogether(t.Context(), p.attached()[0], suspect))
	require.Equal(t, 1, b.count(`select count(*) from firstseen.parked`), "a lost claim loads nothing")
	require.NoError(t, p.workTogether(t.Context(), p.attached()[0], next))
	b.requireOnce(1)
}

func TestALaneThatIsLockedForAMomentIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h"))})
	b.process(p, b.messages("k=fail:1"))
	b.due()
	claims, err := b.store.ClaimLanes(t.Context(), "h", 1, time.Minute)
	require.NoError(t, err)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from firstseen.lanes for update`)
	require.NoError(t, err)
	time.AfterFunc(200*time.Millisecond, func() { _ = tx.Rollback(context.Background()) })
	require.NoError(t, p.workTogether(t.Context(), p.attached()[0], claims))
	b.requireOnce(1)
}

func TestALaneThatIsBeingAddedToIsNotRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h"))})
	b.process(p, b.messages("k=fail:1"))
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	for _, sql := range []string{
		`insert into firstseen.parked (scope_id, lane, "offset", message_id, topic, "partition", key, payload)
			select scope_id, lane, 1, gen_random_uuid(), topic, "partition", key, 'ok' from firstseen.parked`,
		`select firstseen.open_lanes(array[scope_id], array[lane], array[0], array[topic], array["partition"]) from firstseen.lanes`,
	} {
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	end := time.Now().Add(3 * time.Second)
	for b.count(`select count(*) from effects`) == 0 && time.Now().Before(end) {
		_, err = p.workLanes(t.Context(), p.attached()[0])
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.Zero(t, b.count(`select count(*) from firstseen.parked p where not exists (select from firstseen.lanes l where l.lane = p.lane)`))
	b.drain(p)
	b.requireOnce(2)
}

func TestAStoppedWorkerGivesItsLanesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := newObedient("h")
	inside := make(chan struct{})
	reg := Registration{Name: "h", Handler: Each(HandlerFunc(func(ctx context.Context,
		tx pgx.Tx, m dedup.Message) error {
		switch h.try(m.ID) {
		case 1:
			return errTold
		case 2:
			close(inside)
			<-ctx.Done()
			return errors.New("broken off")
		}
		return h.Handle(ctx, tx, m)
	}))}
	p := b.processor(nil, reg)
	b.process(p, b.messages("k=ok"))
	stop := runLanes(p)
	<-inside
	stop()
	require.Equal(t, "1 0 true", b.text(`select p.attempts || ' ' || l.claims || ' ' || (l.due_at <= clock_timestamp())
		from firstseen.parked p join firstseen.lanes l using (lane)`))
	b.drain(b.processor(nil, reg))
	b.requireOnce(1)
}

// TestLanesUnderLoad has two processes work on lanes while batches of the same keys arrive.
func TestLanesUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other, err := dedup.Open(t.Context(), deduptest.OpenPool(t, b.dsn, nil), dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	h := newObedient("h")
	reg := Registration{Name: "h", Handler: Each(h),
		Retry: Retry{Base: 4 * time.Millisecond, Cap: 20 * time.Millisecond}}
	one, two := b.processor(nil, reg), b.processor(func(c *Config) { c.Store = other }, reg)
	stop := runLanes(one, two)

	const partitions = 3
	var feeding sync.WaitGroup
	sent := make([]int, partitions)
	end := time.Now().Add(3 * time.Second)
	for i := range partitions {
		feeder := *b
		feeder.position = b.acquire(int32(i))
		p := []*Processor{one, two}[i%2]
		feeding.Go(func() {
			for time.Now().Before(end) {
				texts := make([]string, 1+rand.IntN(40))
				for j := range texts {
					what := "ok"
					if rand.IntN(8) == 0 {
						what = fmt.Sprint([]string{"fail:", "unavailable:", "panic:"}[rand.IntN(3)], rand.IntN(4))
					}
					texts[j] = fmt.Sprint("p", i, "-k", rand.IntN(6), "=", what)
				}
				ms := feeder.messages(texts...)
				if _, err := p.Process(context.Background(), feeder.batch(ms)); err != nil {
					t.Errorf("partition %d: %v", i, err)
					return
				}
				sent[i] += len(ms)
				time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond) // a pace, not a wait
			}
		})
	}
	feeding.Wait()
	fed := time.Now()
	require.Eventually(t, func() bool { return b.count(`select count(*) from firstseen.lanes`) == 0 }, 3*time.Minute,
		20*time.Millisecond)
	stop()
	total := sent[0] + sent[1] + sent[2]
	t.Logf("%d messages, %d by way of a lane, drained %s after the last", total,
		b.count(`select count(*) from firstseen.inbox where attempts > 0`), time.Since(fed).Round(time.Millisecond))
	b.requireWhole(total)
	b.requireOnce(total)
	require.Zero(t, b.count(`select count(*) from firstseen.dead_letters`))
}

// A lane worker's transaction is sealed as a batch's is: a COMMIT that a handler slips in must not keep what was done
// so far, while the message stays parked and is handled again.
func TestCommitThatAHandlerSendsFromALaneRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"commit", "commit; begin", "commit and chain"} {
		t.Run(sql, func(t *testing.T) {
			b, tries := newBench(t), 0
			p := b.processor(nil, Registration{Name: "h",
				Retry: Retry{Base: time.Microsecond, Cap: time.Microsecond, MaxAttempts: 5},
				Handler: Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
					if tries++; tries == 1 {
						return errTold
					}
					_, err := tx.Exec(ctx,
						`insert into effects (handler, message_id, key, "offset") values ('h', $1, $2, $3)`,
						m.ID, string(m.Key), m.Offset)
					if tries == 2 {
						_, _ = tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
					}
					return err
				}))})
			b.process(p, b.messages("k=x"))
			b.drain(p)
			require.Greater(t, tries, 2, "it was tried again")
			require.Equal(t, 1, b.count(`select count(*) from effects`), "effects")
			require.Equal(t, 1, b.count(`select count(*) from firstseen.inbox`))
		})
	}
}

func TestPausesAfterFailuresWithLanesGrowToTheLease(t *testing.T) {
	var p pause
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, laneLease, laneLease} {
		p.lengthen(time.Second)
		require.Equal(t, want, p.length)
		require.WithinDuration(t, time.Now().Add(want), p.until, time.Minute)
	}
}
