package handlers_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

type senderFunc func(ms []dedup.Message) []error

func (f senderFunc) Send(_ context.Context, ms []dedup.Message) []error { return f(ms) }

// Three of ten fail, each in its way, and those behind the one that is dead are sent in the same transaction.
func TestSenderIsNeverGivenAMessageAgainThatItHasSentOrFailedOn(t *testing.T) {
	s := newStage(t)
	given := map[uuid.UUID]int{}
	var sent []int64
	dead := false
	s.register("h", handlers.Send(senderFunc(func(ms []dedup.Message) []error {
		errs := make([]error, len(ms))
		for i, m := range ms {
			given[m.ID]++
			switch {
			case m.Offset == 2:
				errs[i] = errors.New("no")
			case m.Offset == 4:
				errs[i], dead = handlers.Permanent(errors.New("never")), true
			case m.Offset == 5:
				errs[i] = handlers.Unavailable(errors.New("away"))
			case m.Offset == 9 && given[m.ID] == 1: // behind the dead one
				errs[i] = handlers.ErrUnsent
			default:
				sent = append(sent, m.Offset)
			}
		}
		return errs
	})))
	p := s.position("orders")
	ms := keyed(messages(p, newIDs(10)...))
	ms[9].Key = ms[4].Key
	s.requireResult(handlers.Result{New: 7, Parked: 2, Dead: 1}, p, ms...)
	require.True(t, dead)
	require.Equal(t, []int64{0, 1, 3, 6, 7, 8, 9}, sent)
	for i, m := range ms {
		require.Equal(t, map[bool]int{true: 2, false: 1}[i == 9], given[m.ID], "message %d", i)
	}
	require.Equal(t, 1, s.count(`select count(*) from firstseen.parked
		where attempts = 0 and "offset" = 5 and reason = 'unavailable'`))
	require.Equal(t, 1, s.count(`select count(*) from firstseen.parked where attempts = 1 and "offset" = 2`))
}
