package handlers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestRetryWaitsAsLongAsTheHandlerAsks(t *testing.T) {
	r := Retry{Base: time.Millisecond, Cap: time.Millisecond, MaxAttempts: 3}
	for name, c := range map[string]struct {
		err          error
		least, most  time.Duration
		wantAttempts int
	}{
		"plain":       {errors.New("x"), 0, time.Millisecond, 1},
		"after":       {After(errors.New("x"), time.Minute), time.Minute, time.Minute, 1},
		"capped":      {After(errors.New("x"), 1000*time.Hour), time.Hour, time.Hour, 1},
		"negative":    {After(errors.New("x"), -1), 0, time.Millisecond, 1},
		"unavailable": {fmt.Errorf("y: %w", After(Unavailable(errors.New("x")), time.Minute)), time.Minute, time.Minute, 0},
		"inside":      {Unavailable(After(errors.New("x"), time.Minute)), time.Minute, time.Minute, 0},
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
