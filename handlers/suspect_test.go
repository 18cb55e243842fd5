package handlers

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
)

// The rows of the table in suspect.go that need no process to die.
func TestAFailureIsAMessagesByEvidenceOnly(t *testing.T) {
	began := time.Now()
	well := dedup.Server{Started: began, Writable: true}
	same := evidence{before: well, after: well}
	othersEnded, othersFail, othersPass := same, same, same
	othersEnded.othersEnded, othersFail.othersFail, othersPass.othersPass = true, true, true
	restarted := evidence{before: well,
		after: dedup.Server{Started: began.Add(time.Second), Writable: true}, othersPass: true}
	readOnly := evidence{before: well, after: dedup.Server{Started: began}, othersPass: true}
	for _, c := range []struct {
		name   string
		known  evidence
		blamed []failure.Sign
	}{
		{"the same server is well", same, []failure.Sign{failure.TooSlow, failure.Ended, failure.Silent}},
		{"others were ended", othersEnded, []failure.Sign{failure.TooSlow}},
		{"others come to such an end too", othersFail, []failure.Sign{failure.TooSlow}},
		{"others pass", othersPass,
			[]failure.Sign{failure.TooSlow, failure.Ended, failure.Silent, failure.Short, failure.ReadOnly}},
		{"the server was restarted, or is another", restarted, nil},
		{"the server is read-only", readOnly, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var blamed []failure.Sign
			for sign := failure.Other; sign <= failure.Away; sign++ {
				if c.known.blames(sign) {
					blamed = append(blamed, sign)
				}
			}
			require.ElementsMatch(t, c.blamed, blamed)
		})
	}
}

func TestAShortageIsAMessagesOnlyWhereOthersPassBesideIt(t *testing.T) {
	a, b := &registered{name: "a"}, &registered{name: "b"}
	at := func(from, to int64) span { return span{"orders", 0, from, to} }
	x, y := at(3, 3), at(7, 7)
	full := &handlerError{"a", &pgconn.PgError{Code: "53100"}}
	now := time.Now()
	for name, c := range map[string]struct {
		happens func(w *work)
		after   time.Duration
		blamed  bool
	}{
		"nothing":                      {func(*work) {}, 0, false},
		"nobody else came":             {func(w *work) { w.failed(x, full, a, b) }, 0, false},
		"nobody else came for minutes": {func(w *work) { w.failed(x, full, a, b) }, shortFor / 2, false},
		"nobody else came for long":    {func(w *work) { w.failed(x, full, a, b) }, 2 * shortFor, true},
		"others passed before":         {func(w *work) { w.handled(a); w.failed(x, full, a, b) }, 0, false},
		"others passed since":          {func(w *work) { w.failed(x, full, a, b); w.handled(a) }, 0, true},
		"others passed long ago":       {func(w *work) { w.failed(x, full, a, b); w.handled(a) }, shortFor / 2, false},
		"another handler's passed":     {func(w *work) { w.failed(x, full, a, b); w.handled(b) }, 0, false},
		"others of its batch passed": {func(w *work) {
			w.failed(at(0, 9), full, a, b)
			w.handled(a)
			w.failed(x, full, a)
		}, 0, true},
		"it failed for another reason": {func(w *work) { w.failed(x, errTold, a, b); w.handled(a) }, 0, false},
		"another batch was short":      {func(w *work) { w.failed(at(4, 9), full, a, b); w.handled(a) }, 0, false},
		"it overcame that": {func(w *work) {
			w.failed(x, full, a)
			w.overcame(a, x)
			w.handled(a)
		}, 0, false},
		"others failed since": {func(w *work) { w.failed(x, full, a); w.handled(a); w.failed(y, full, a) },
			2 * shortFor, false},
		"others failed meanwhile": {func(w *work) {
			w.failed(x, full, a)
			w.handled(a)
			w.failed(y, full, a)
			w.failed(x, full, a)
		}, 0, false},
		"others failed, and pass again": {func(w *work) {
			w.failed(y, full, a)
			w.failed(x, full, a)
			w.handled(a)
		}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWork([]*registered{a, b}, nil)
			c.happens(w)
			require.Equal(t, c.blamed, w.others(a, x, now.Add(c.after)) == othersPass)
			require.Equal(t, nothingKnown, w.others(b, x, now.Add(c.after)), "the other handler has not failed")
		})
	}
}

// suspected parks a message that is set apart, of a handler with three attempts.
func (b *bench) suspected(handle func() error) *Processor {
	b.t.Helper()
	p := b.processor(nil,
		Registration{Name: "h", Retry: Retry{Base: time.Microsecond, Cap: time.Microsecond, MaxAttempts: 3},
			Handler: Each(HandlerFunc(func(context.Context, pgx.Tx, dedup.Message) error { return handle() }))})
	batch := b.batch(b.messages("k=v"))
	batch.Apart = true
	result, err := p.Process(b.t.Context(), batch)
	require.NoError(b.t, err)
	require.Equal(b.t, Result{Parked: 1}, result)
	return p
}

// Each of them may be the one that dies over it.
func TestABatchThatIsSetApartReachesNoneOfItsHandlers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two := newObedient("one"), newObedient("two")
	p := b.processor(nil, Registration{Name: "one", Handler: Each(one)}, Registration{Name: "two", Handler: Each(two)})
	batch := b.batch(b.messages("k=ok"))
	batch.Apart = true
	result, err := p.Process(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, Result{Parked: 2}, result)
	require.Empty(t, one.tries)
	require.Empty(t, two.tries)
	require.Equal(t, 2, b.count(`select count(*) from firstseen.lanes where claims > 0`), "each is handled by itself")
	b.drain(p)
	require.Len(t, one.tries, 1)
	require.Len(t, two.tries, 1)
}

func (b *bench) claimSuspect(p *Processor) []dedup.Claim {
	b.t.Helper()
	b.exec(`update firstseen.lanes set due_at = now() - interval '1 s'`)
	claims, err := b.store.ClaimLanes(b.t.Context(), "h", 1, time.Minute)
	require.NoError(b.t, err)
	require.Len(b.t, claims, 1)
	require.Greater(b.t, claims[0].Times, mostClaims)
	return claims
}

func TestAnEndThatOthersComeToTooIsNobodys(t *testing.T) {
	a := &registered{name: "a"}
	x, y := span{"orders", 0, 3, 3}, span{"orders", 0, 7, 7}
	ended, now := &handlerError{"a", &pgconn.PgError{Code: "57P01"}}, time.Now()
	w := newWork([]*registered{a}, nil)
	w.noteShort(a, x, ended, now)
	require.Equal(t, nothingKnown, w.others(a, x, now), "of itself it says nothing")
	w.noteShort(a, y, ended, now)
	require.Equal(t, othersFail, w.others(a, x, now))
	require.Equal(t, othersFail, w.others(a, y, now))
	w.handled(a)
	require.Equal(t, othersPass, w.others(a, x, now))
	w.noteShort(a, x, ended, now)
	require.Equal(t, othersPass, w.others(a, x, now))
	require.Equal(t, othersFail, w.others(a, y, now))
}

// A process that dies leaves its announcement behind.
func TestAMessageIsGivenUpAsAKillerOnlyAfterADeathWithNobodyElseAtWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	called := false
	p := b.suspected(func() error { called = true; return nil })
	announce := func(want dedup.Answer, attempts int, alone bool) {
		t.Helper()
		_, n, answer, err := b.store.Announce(t.Context(), b.claimSuspect(p)[0], uuid.New(), time.Minute, 3, alone)
		require.NoError(t, err)
		require.Equal(t, want, answer)
		require.Equal(t, attempts, n)
	}
	announce(dedup.Counted, 1, false)
	announce(dedup.Counted, 2, false)
	announce(dedup.LastOne, 2, false)
	announce(dedup.LastOne, 2, false)
	require.Equal(t, "suspected", b.text(`select reason from firstseen.parked`))
	announce(dedup.Counted, 3, true)
	require.Equal(t, "killed", b.text(`select reason from firstseen.parked`))
	announce(dedup.Killed, 3, false)
	var log lockedLog
	p.cfg.Logger = log.logger()
	require.NoError(t, p.workApart(t.Context(), b.claimSuspect(p)))
	require.False(t, called)
	require.Equal(t, "killed 3", b.text(`select reason || ' ' || attempts from firstseen.dead_letters`))
	require.Equal(t, 1, log.count(`msg="message killed the process again and again; dead letter" handler=h message=orders/0@0`))
	b.requireWhole(1)
}

func TestAKillersLastAttemptWaitsUntilNobodyElseIsAtWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	called := make(chan bool, 1)
	p := b.suspected(func() error { called <- true; return nil })
	b.exec(`update firstseen.parked set attempts = 2, reason = 'suspected'`)
	other := p.work.begin()
	ended := make(chan error, 1)
	claims := b.claimSuspect(p)
	go func() { ended <- p.workApart(context.Background(), claims) }()
	require.Eventually(t, func() bool { // it waits for the other, and nobody new begins
		free := p.work.atWork.TryRLock()
		if free {
			p.work.atWork.RUnlock()
		}
		return !free
	}, 3*time.Minute, time.Millisecond)
	require.Empty(t, called)
	other()
	require.NoError(t, <-ended)
	require.True(t, <-called)
	require.Equal(t, 2, b.count(`select attempts from firstseen.inbox`),
		"the two that it has died in, or so it seemed")
}

// Else a message that is tried alone in the process would not be.
func TestWhoeverCallsAHandlerIsAtWork(t *testing.T) {
	t.Parallel()
	var atWork []bool
	ask := func(p *Processor) {
		nobody := p.work.atWork.TryLock()
		if nobody {
			p.work.atWork.Unlock()
		}
		atWork = append(atWork, !nobody)
	}
	b := newBench(t)
	var p *Processor
	h := newObedient("h")
	p = b.processor(nil, Registration{Name: "h", Handler: Each(HandlerFunc(func(ctx context.Context,
		tx pgx.Tx, m dedup.Message) error {
		ask(p)
		return h.Handle(ctx, tx, m)
	}))})
	b.process(p, b.messages("k=fail:1"))
	b.drain(p)
	require.Equal(t, []bool{true, true}, atWork, "in a batch, and then in a lane")

	atWork = nil
	var c calls
	p = b.processor(nil, Registration{Name: "hook", Detached: c.noting(func(context.Context, dedup.Message) error {
		ask(p)
		return nil
	})})
	b.process(p, b.messages("k=v"))
	lanes(t, p)
	b.delivered(2)
	require.Equal(t, []bool{true}, atWork, "in a call without a transaction")
}

func TestAnAttemptWhosePostgresWasRestartedIsNone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.suspected(func() error { return &pgconn.PgError{Code: "53100"} })
	b.exec(`create or replace function firstseen.pg_postmaster_start_time() returns timestamptz language sql as
		'select clock_timestamp()'; alter database ` + b.text(`select current_database()`) + ` set search_path = firstseen, pg_catalog, public`)
	b.pool.Reset()
	require.NoError(t, p.workApart(t.Context(), b.claimSuspect(p)))
	require.Zero(t, b.count(`select attempts from firstseen.parked`))
	b.exec(`drop function firstseen.pg_postmaster_start_time`)
	p.work.handled(p.attached()[0]) // another message
	require.NoError(t, p.workApart(t.Context(), b.claimSuspect(p)))
	require.Equal(t, 1, b.count(`select attempts from firstseen.parked`), "by itself, while Postgres was well")
	require.Equal(t, 1, b.count(`select claims from firstseen.lanes`), "its next attempt is by itself too")
}

// Else another worker claims them meanwhile, and takes them for lanes that got nowhere: of many none would be ordinary again.
func TestSuspectsThatAreNotReachedInTimeAreGivenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, slow := newObedient("h"), false
	p := b.processor(nil, Registration{Name: "h", Handler: Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if slow {
			time.Sleep(laneLease / 2)
		}
		return h.Handle(ctx, tx, m)
	}))})
	b.process(p, b.messages("k=fail:1", "l=fail:1", "m=fail:1"))
	b.due()
	for range 2 {
		claims, err := b.store.ClaimLanes(t.Context(), "h", 3, 0)
		require.NoError(t, err)
		require.Len(t, claims, 3)
		slow = claims[0].Times > mostClaims
		if slow {
			require.NoError(t, p.workApart(t.Context(), claims))
		}
	}
	require.Equal(t, 2, b.count(`select count(*) from firstseen.parked where attempts = 1`))
	require.Equal(t, 2, b.count(`select count(*) from firstseen.lanes where claims = 1 and due_at <= clock_timestamp()`))
}

// workApart works on claimed lanes as if there were no others.
func (p *Processor) workApart(ctx context.Context, claims []dedup.Claim) error {
	return p.workSuspects(ctx, p.attached()[0], claims, laneBatch/len(claims))
}
