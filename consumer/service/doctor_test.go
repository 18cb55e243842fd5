package service

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/memory"
)

// patient is a stage whose doctor looks until he is let go.
func patient(t *testing.T) (s *stage, looks *atomic.Int64, let chan struct{}) {
	s = stageOn(t, deduptest.OpenPool(t, "postgres://nobody@127.0.0.1:1/none?connect_timeout=1", nil))
	looks, let = &atomic.Int64{}, make(chan struct{})
	s.cfg.Doctor = func(ctx context.Context) ([]view.Finding, error) {
		looks.Add(1)
		select {
		case <-let:
			return []view.Finding{{Check: "kafka.lag", Level: "warning", Checked: true}, {Check: "ids.missing", Level: "ok"}}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s, looks, let
}

func TestDoctorLooksOnceHoweverManyAsk(t *testing.T) {
	s, looks, let := patient(t)
	first, err := s.Examine(t.Context(), 0)
	require.NoError(t, err)
	require.Nil(t, first.Worst)
	require.Nil(t, first.LookedAt)
	require.NotNil(t, first.LookingSince)
	require.NotNil(t, first.Findings)
	var asking sync.WaitGroup
	for range 10 {
		asking.Go(func() {
			found, err := s.Examine(t.Context(), waitFor)
			if err != nil || found.Worst == nil || *found.Worst != "warning" || len(found.Findings) != 2 || found.LookingSince != nil {
				t.Error(found, err)
			}
		})
	}
	close(let)
	asking.Wait()
	require.EqualValues(t, 1, looks.Load())
	_, err = s.Examine(t.Context(), waitFor) // it is kept
	require.NoError(t, err)
	require.EqualValues(t, 1, looks.Load())
	s.doctor.mu.Lock()
	require.Greater(t, time.Until(s.doctor.until), 20*time.Second)
	s.doctor.until = time.Time{} // once it is old
	s.doctor.mu.Unlock()
	found, err := s.Examine(t.Context(), waitFor)
	require.NoError(t, err)
	require.False(t, found.LookedAt.Before(*first.LookingSince))
	require.EqualValues(t, 2, looks.Load())
}

func TestWhoEndsTheServiceEndsTheDoctorsLook(t *testing.T) {
	s, looks, _ := patient(t)
	_, err := s.Examine(t.Context(), 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return looks.Load() == 1 }, waitFor, time.Millisecond)
	s.endLooks() // goleak finds him if he goes on
	_, err = s.Examine(t.Context(), waitFor)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, looks.Load())
}

func TestDoctorTakesMemoryOfTheAccountAndGivesItBackThoughItPanics(t *testing.T) {
	s := newStage(t)
	parts := s.parts()
	parts.Memory = memory.New(16 << 20)
	s.Attach(parts)
	taken := 0
	s.cfg.Doctor = func(context.Context) ([]view.Finding, error) {
		taken = parts.Memory.Used()
		panic("no such organ")
	}
	_, err := s.Examine(t.Context(), waitFor)
	require.ErrorContains(t, err, "no such organ")
	require.Equal(t, 2<<20, taken)
	require.Zero(t, parts.Memory.Used())
}

func TestProgramWithoutADoctorSaysSo(t *testing.T) {
	_, err := newStage(t).Examine(t.Context(), 0)
	require.True(t, errors.Is(err, ErrNoDoctor))
}
