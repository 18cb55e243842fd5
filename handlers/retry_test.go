package handlers

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
)

func TestPausesGrowToTheCapAndAreRandom(t *testing.T) {
	r := Retry{Base: time.Second, Cap: time.Minute}
	for attempts, ceiling := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 40: time.Minute,
		math.MaxInt: time.Minute,
	} {
		require.Equal(t, ceiling, r.ceiling(attempts))
		longest, seen := time.Duration(0), map[time.Duration]bool{}
		for range 1000 {
			pause := r.pause(attempts)
			require.GreaterOrEqual(t, pause, time.Duration(0))
			require.LessOrEqual(t, pause, ceiling)
			longest, seen[pause] = max(longest, pause), true
		}
		require.Greater(t, longest, ceiling*9/10)
		require.Greater(t, len(seen), 900)
	}
	huge := Retry{Base: math.MaxInt64/2 + 1, Cap: math.MaxInt64}
	for _, attempts := range []int{2, 9, math.MaxInt} {
		require.Equal(t, huge.Cap, huge.ceiling(attempts))
		require.Positive(t, huge.pause(attempts))
	}
}

func TestPausesDoubleUntilTheyWouldExceedTheCap(t *testing.T) {
	for _, c := range []struct{ base, most, second, third time.Duration }{
		{25 * time.Second, time.Minute, 50 * time.Second, time.Minute},
		{time.Second, math.MaxInt64, 2 * time.Second, 4 * time.Second},
		{1, 3, 2, 3},
		{1, 1, 1, 1},
	} {
		r := Retry{Base: c.base, Cap: c.most}
		require.Equal(t, []time.Duration{c.base, c.second, c.third},
			[]time.Duration{r.ceiling(1), r.ceiling(2), r.ceiling(3)})
	}
	least := Retry{Base: 1, Cap: 1}
	require.EqualValues(t, 1, least.pause(1), "no pause is longer than its ceiling, nor none")
}

func TestRetriesByDefault(t *testing.T) {
	var r Retry
	r.setDefaults()
	require.Equal(t, Retry{Base: time.Second, Cap: 5 * time.Minute, MaxAttempts: 10}, r)
	r.Base = time.Hour // nobody has set a cap
	require.Equal(t, r.Cap, r.ceiling(1))
	least := Retry{Base: 1, Cap: 1, MaxAttempts: 1}
	set := least
	set.setDefaults()
	require.Equal(t, least, set)
	require.NoError(t, set.validate())
}

func TestAHoldGrowsWithTheTimeThatTheMessageHasWaited(t *testing.T) {
	r := Retry{Base: time.Second, Cap: time.Minute}
	for waited, ceiling := range map[time.Duration]time.Duration{0: time.Second, 30 * time.Second: 30 * time.Second,
		time.Hour: time.Minute} {
		longest := time.Duration(0)
		for range 1000 {
			e := &dedup.Entry{ParkedAt: time.Now().Add(-waited)}
			r.fail(e, Unavailable(errTold))
			require.Equal(t, dedup.Parked, e.State)
			require.Zero(t, e.Attempts)
			require.LessOrEqual(t, e.Due, ceiling+time.Second)
			longest = max(longest, e.Due)
		}
		require.Greater(t, longest, ceiling*9/10)
	}
}

func TestWhatBecomesOfAFailedMessage(t *testing.T) {
	r := Retry{MaxAttempts: 3, MaxAge: time.Hour}
	r.setDefaults()
	long := time.Now().Add(-2 * time.Hour)
	for _, c := range []struct {
		name   string
		e      dedup.Entry
		err    error
		state  dedup.State
		reason string
		tries  int
	}{
		{"first", dedup.Entry{}, errTold, dedup.Parked, reasonFailed, 1},
		{"last", dedup.Entry{Attempts: 2}, errTold, dedup.Dead, reasonExhausted, 3},
		{"permanent", dedup.Entry{}, Permanent(errTold), dedup.Dead, reasonPermanent, 1},
		{"unavailable", dedup.Entry{Attempts: 2, ParkedAt: long},
			Unavailable(errTold), dedup.Parked, reasonUnavailable, 2},
		{"permanently unavailable", dedup.Entry{}, Permanent(Unavailable(errTold)),
			dedup.Parked, reasonUnavailable, 0},
		{"too old", dedup.Entry{Attempts: 1, ParkedAt: long}, errTold, dedup.Dead, reasonTooOld, 2},
		{"waited long behind another", dedup.Entry{ParkedAt: long}, errTold, dedup.Parked, reasonFailed, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.fail(&c.e, c.err)
			require.Equal(t, c.state, c.e.State)
			require.Equal(t, c.reason, c.e.Reason)
			require.Equal(t, c.tries, c.e.Attempts)
			require.Equal(t, "told to fail", c.e.Error)
		})
	}
}

func TestAMessageDiesOfTheEndOfItsSessionInItsLastAttempt(t *testing.T) {
	r := Retry{MaxAttempts: 3}
	r.setDefaults()
	for _, c := range []struct {
		before int
		sign   failure.Sign
		reason string
	}{
		{1, failure.Ended, reasonFailed},
		{2, failure.Ended, reasonEndedSession},
		{2, failure.TooSlow, reasonExhausted},
	} {
		e := &dedup.Entry{Attempts: c.before}
		r.fail(e, fmt.Errorf("handler: %w", &suspectError{c.sign, errTold}))
		require.Equal(t, c.reason, e.Reason)
		require.Equal(t, c.reason != reasonFailed, e.State == dedup.Dead)
		require.Equal(t, c.before+1, e.Attempts)
	}
}

func TestAttemptsSurviveARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := newObedient("h")
	reg := Registration{Name: "h", Handler: Each(h),
		Retry: Retry{Base: time.Microsecond, Cap: time.Microsecond, MaxAttempts: 4}}
	b.process(b.processor(nil, reg), b.messages("a=fail:2", "b=fail:99", "a=ok", "b=ok"))
	for range 20 {
		p := b.processor(nil, reg)
		_, err := p.workLanes(t.Context(), p.attached()[0])
		require.NoError(t, err)
		b.due()
	}
	b.drain(b.processor(nil, reg))
	b.requireWhole(4)
	b.requireOnce(3)
	require.Equal(t, 2, b.count(`select attempts from firstseen.inbox where "offset" = 0`))
	require.Equal(t, 4, b.count(`select attempts from firstseen.dead_letters where reason = 'attempts_exhausted'`))
	require.Equal(t, 4, h.tries[b.id(`select message_id from firstseen.dead_letters`)])
}

func TestTheLeastMaxAgeIsALimit(t *testing.T) {
	r := Retry{MaxAge: 1}
	r.setDefaults()
	e := &dedup.Entry{Attempts: 1, ParkedAt: time.Now().Add(-time.Minute)}
	r.fail(e, errTold)
	require.Equal(t, reasonTooOld, e.Reason)
}

func TestMaxAgeCountsFromTheFirstFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h")),
		Retry: Retry{Base: time.Microsecond, Cap: time.Microsecond, MaxAge: time.Hour}})
	b.process(p, b.messages("a=fail:1", "a=fail:1", "b=fail:99"))
	b.exec(`update firstseen.parked set parked_at = now() - interval '2 hours'`)
	b.drain(p)
	b.requireOnce(2)
	require.Equal(t, "too_old 2", b.text(`select reason || ' ' || attempts from firstseen.dead_letters`))
}

func TestRetryContradictions(t *testing.T) {
	require.Error(t, (&Retry{Base: time.Minute, Cap: time.Second}).validate())
	require.Error(t, (&Retry{Base: 2, Cap: 1}).validate())
	require.NoError(t, (&Retry{}).validate())
	require.NoError(t, (&Retry{Base: time.Hour}).validate(), "the cap is not set")
	require.False(t, errors.Is(Permanent(errTold), Unavailable(errTold)))
}

func TestRetryWaitsAsLongAsTheHandlerAsks(t *testing.T) {
	r := Retry{Base: time.Millisecond, Cap: time.Millisecond, MaxAttempts: 3}
	for name, c := range map[string]struct {
		err          error
		least, most  time.Duration
		wantAttempts int
	}{
		"plain":    {errors.New("x"), 0, time.Millisecond, 1},
		"after":    {After(errors.New("x"), time.Minute), time.Minute, time.Minute, 1},
		"capped":   {After(errors.New("x"), 1000*time.Hour), time.Hour, time.Hour, 1},
		"negative": {After(errors.New("x"), -1), 0, time.Millisecond, 1},
		"unavailable": {fmt.Errorf("y: %w", After(Unavailable(errors.New("x")), time.Minute)),
			time.Minute, time.Minute, 0},
		"inside": {Unavailable(After(errors.New("x"), time.Minute)), time.Minute, time.Minute, 0},
	} {
		e := &dedup.Entry{Message: &dedup.Message{ID: uuid.New()}}
		r.fail(e, c.err)
		require.Equal(t, dedup.Parked, e.State, name)
		require.GreaterOrEqual(t, e.Due, c.least, name)
		require.LessOrEqual(t, e.Due, c.most, name)
		require.Equal(t, c.wantAttempts, e.Attempts, name)
	}
	e := &dedup.Entry{Message: &dedup.Message{}}
	r.fail(e, After(Permanent(errors.New("x")), time.Minute))
	require.Equal(t, dedup.Dead, e.State)
}
