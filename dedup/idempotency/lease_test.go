package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/idempotency"
)

// tampered is a store of which a test does some of the work.
type tampered struct {
	idempotency.Store
	claim    func(error) error        // gets what the claim came to
	extend   func() error             // nil: the claim is extended
	complete func(func() error) error // gets what completes it
}

func (s *tampered) Claim(ctx context.Context, e idempotency.Entry, lease, ttl time.Duration) (
	int64, idempotency.Finding, error) {
	fence, found, err := s.Store.Claim(ctx, e, lease, ttl)
	if s.claim != nil {
		err = s.claim(err)
	}
	return fence, found, err
}

func (s *tampered) Extend(ctx context.Context, id idempotency.ID, fence int64, lease time.Duration) error {
	if s.extend != nil {
		if err := s.extend(); err != nil {
			return err
		}
	}
	return s.Store.Extend(ctx, id, fence, lease)
}

func (s *tampered) Complete(ctx context.Context, id idempotency.ID, fence int64, a idempotency.Answer) error {
	complete := func() error { return s.Store.Complete(ctx, id, fence, a) }
	if s.complete != nil {
		return s.complete(complete)
	}
	return complete()
}

var errCutOff = &idempotency.StoreError{Op: "do anything", Kind: idempotency.KindConnection,
	Err: errors.New("cut off")}

func cutOff() error { return errCutOff }

// claimedOn serves a handler behind a store that is tampered with.
func (s *stage) claimedOn(store *tampered, h http.HandlerFunc) *service {
	s.t.Helper()
	store.Store = s.store
	m, err := idempotency.Claimed(store, s.cfg)
	require.NoError(s.t, err)
	return s.serve(m, h)
}

// leaseIsOver has all claims' time pass.
func (s *stage) leaseIsOver() {
	s.exec(`update firstseen.idempotency set lease_until = now() where status is null`)
}

// takeClaims has all claims be somebody else's.
func (s *stage) takeClaims() { s.exec(`update firstseen.idempotency set fence = fence + 1`) }

// Case 34: a process that dies within its handler leaves a claim, which ends with its lease and not before.
func TestClaimOfADeadOwnerEndsWithItsLease(t *testing.T) {
	s := newStage(t)
	dead := &tampered{claim: func(error) error { return errCutOff }}
	dies := s.claimedOn(dead, func(http.ResponseWriter, *http.Request) {
		t.Error("the dead owner's handler ran")
	})
	require.Equal(t, http.StatusServiceUnavailable, dies.post("k", `{}`).status)
	s.cfg.ConflictStatus = http.StatusUnprocessableEntity
	orders := s.claimed(s.create)
	require.Equal(t, idempotency.CodeInProgress, orders.post("k", `{}`).code())
	require.Equal(t, http.StatusUnprocessableEntity, orders.post("k", `{"n":2}`).status)
	require.Zero(t, s.effects())
	s.leaseIsOver()
	require.Equal(t, http.StatusCreated, orders.post("k", `{}`).status)
	require.True(t, orders.post("k", `{}`).replayed())
	s.left(1, 1)
}

func TestHeartbeatKeepsTheClaimWhileTheHandlerWorks(t *testing.T) {
	s := newStage(t)
	s.cfg.Lease = 3 * time.Second
	extended := make(chan struct{}, 100)
	beats := &tampered{extend: func() error {
		extended <- struct{}{}
		return nil
	}}
	orders := s.claimedOn(beats, func(w http.ResponseWriter, r *http.Request) {
		<-extended
		<-extended // the first one is through
		require.Equal(t, 1, count(t, s.db.Pool,
			`firstseen.idempotency where lease_until > created_at + interval '3 seconds'`))
		s.create(w, r)
	})
	require.Equal(t, http.StatusCreated, orders.post("k", `{}`).status)
	s.left(1, 1)
}

func TestHandlerHearsThatItsClaimIsLost(t *testing.T) {
	for name, lose := range map[string]struct {
		store *tampered
		to    func(*stage)
	}{
		"to another":                {&tampered{}, (*stage).takeClaims},
		"the store does not answer": {&tampered{extend: cutOff}, func(*stage) {}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.cfg.Lease = 300 * time.Millisecond
			var cause error
			orders := s.claimedOn(lose.store, func(w http.ResponseWriter, r *http.Request) {
				lose.to(s)
				<-r.Context().Done()
				cause = context.Cause(r.Context())
				http.Error(w, "lost", http.StatusServiceUnavailable)
			})
			require.Equal(t, "lost\n", orders.post("k", `{}`).body)
			require.ErrorIs(t, cause, idempotency.ErrClaimLost)
			require.Zero(t, s.answers())
		})
	}
}

// The first owner was thought dead, and answers late: its answer is refused, and its client told the one that stands.
func TestAnswerThatComesAfterTheClaimWasLostIsRefused(t *testing.T) {
	s := newStage(t)
	started, finish := make(chan int64, 1), make(chan struct{})
	late := s.claimedOn(&tampered{extend: cutOff}, func(w http.ResponseWriter, r *http.Request) {
		started <- idempotency.Fence(r.Context())
		<-finish
		http.Error(w, "late", http.StatusTeapot)
	})
	first := make(chan answer, 1)
	go func() {
		got, _ := late.try("k", "/orders", `{}`)
		first <- got
	}()
	old := <-started
	s.leaseIsOver()
	second := s.claimed(func(w http.ResponseWriter, r *http.Request) {
		if fence := idempotency.Fence(r.Context()); fence <= old {
			t.Errorf("fence %d after %d", fence, old)
		}
		s.create(w, r)
	}).post("k", `{}`)
	require.Equal(t, http.StatusCreated, second.status)
	close(finish)
	got := <-first
	require.Equal(t, []any{http.StatusCreated, second.body, true}, []any{got.status, got.body, got.replayed()})
	s.left(1, 1)
}

func TestClientOfALostClaimWithoutAnAnswerIsToldSo(t *testing.T) {
	s := newStage(t)
	orders := s.claimed(func(w http.ResponseWriter, r *http.Request) {
		s.create(w, r)
		s.takeClaims()
	})
	got := orders.post("k", `{}`)
	require.Equal(t, []any{http.StatusServiceUnavailable, idempotency.CodeOutcomeUnknown, "1"},
		[]any{got.status, got.code(), got.header.Get("Retry-After")})
	require.Empty(t, got.header.Get("Location"))
	s.left(1, 0)
}

// What was stored is found stored, though the store's answer was lost, or did not come the first times.
func TestAnswerIsStoredAsOftenAsTheStoreDoesNotAnswer(t *testing.T) {
	for name, first := range map[string]func(func() error) error{
		"not stored": func(func() error) error { return errCutOff },
		"stored":     func(complete func() error) error { return errors.Join(complete(), errCutOff) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			var tries atomic.Int32
			orders := s.claimedOn(&tampered{complete: func(complete func() error) error {
				if tries.Add(1) <= 2 {
					return first(complete)
				}
				return complete()
			}}, s.create)
			got, again := orders.post("k", `{}`), orders.post("k", `{}`)
			require.Equal(t, []any{http.StatusCreated, got.body, true},
				[]any{got.status, again.body, again.replayed()})
			s.left(1, 1)
		})
	}
}

// The rule on answers that are too large, where the effect can't be taken back.
func TestAnswerThatIsTooLargeIsNotCarriedOutAgain(t *testing.T) {
	s := newStage(t)
	s.cfg.MaxAnswerBytes = 10
	orders := s.claimed(func(w http.ResponseWriter, r *http.Request) {
		_, err := s.effect(r)
		require.NoError(t, err)
		_, _ = w.Write([]byte(strings.Repeat("x", 11)))
	})
	first, again := orders.post("k", `{}`), orders.post("k", `{}`)
	require.Equal(t, []any{http.StatusInternalServerError, idempotency.CodeAnswerTooBig},
		[]any{first.status, first.code()})
	require.Equal(t, []any{first.status, first.code(), true}, []any{again.status, again.code(), again.replayed()})
	s.left(1, 1)
}

// What a handler hands on is the same at each try, and its fence grows.
func TestKeyAndFenceToHandOn(t *testing.T) {
	inBothModes(t, func(t *testing.T, s *stage, serve func(http.HandlerFunc) *service) {
		var keys []string
		var fences []int64
		orders := serve(func(w http.ResponseWriter, r *http.Request) {
			keys, fences = append(keys, idempotency.Key(r.Context())), append(fences, idempotency.Fence(r.Context()))
			w.WriteHeader(http.StatusInternalServerError)
		})
		orders.post("k", `{}`)
		orders.post("k", `{}`)
		orders.post("k", `{}`, "X-Tenant", "b")
		orders.post("", `{}`)
		require.Regexp(t, `^[0-9a-f]{64}$`, keys[0])
		require.Equal(t, keys[0], keys[1])
		require.NotEqual(t, keys[0], keys[2], "another tenant's")
		require.Empty(t, keys[3])
		require.Zero(t, fences[3])
		if fences[0] > 0 {
			require.Greater(t, fences[1], fences[0])
		}
	})
}
