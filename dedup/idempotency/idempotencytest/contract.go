package idempotencytest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/firstseen/firstseen/dedup/idempotency"
)

// Kit gives the tests a store, and does to it what only its maker can.
type Kit struct {
	// New gives an empty store.
	New func(t *testing.T) idempotency.Store
	// Pass has so much of the store's time pass, for all that it holds now.
	Pass func(t *testing.T, s idempotency.Store, d time.Duration)
	// Break gives a store for each kind of error whose calls fail so; nil where it can't fail.
	Break map[idempotency.ErrorKind]func(t *testing.T) idempotency.Store
}

// TestStore runs the tests that each Store must pass, in subtests.
func TestStore(t *testing.T, kit Kit) {
	for name, test := range map[string]func(*suite){
		"NotFound":                       notFound,
		"StoredAndMatching":              storedAndMatching,
		"Conflicting":                    conflicting,
		"InProgress":                     inProgress,
		"ClaimOfAnotherRequestConflicts": claimOfAnotherRequestConflicts,
		"OneOfManyClaims":                oneOfManyClaims,
		"ReleasedIsNotFound":             releasedIsNotFound,
		"LeaseEnds":                      leaseEnds,
		"ExtendedLeaseLasts":             extendedLeaseLasts,
		"LostClaimChangesNothing":        lostClaimChangesNothing,
		"CompleteTwice":                  completeTwice,
		"ExpiredIsNeverUsed":             expiredIsNeverUsed,
		"SweepTakesExpiredOnly":          sweepTakesExpiredOnly,
		"SweepLeavesClaims":              sweepLeavesClaims,
		"FencesGrowAfterASweep":          fencesGrowAfterASweep,
		"AnswerKeepsItsBytes":            answerKeepsItsBytes,
	} {
		t.Run(name, func(t *testing.T) { test(&suite{T: t, kit: kit, store: kit.New(t)}) })
	}
	for kind, broken := range kit.Break {
		t.Run("Error/"+string(kind), func(t *testing.T) { errorKind(t, kind, broken(t)) })
	}
}

type suite struct {
	*testing.T
	kit   Kit
	store idempotency.Store
}

// The times of the tests.
const (
	lease = time.Minute
	ttl   = 24 * time.Hour
)

// Entry is a request by the name of its key and of its content.
func Entry(key, content string) idempotency.Entry {
	return idempotency.Entry{ID: sha256.Sum256([]byte(key)), KeyHash: sha256.Sum256([]byte("key " + key)),
		Fingerprint: sha256.Sum256([]byte(content)), Tenant: "acme", Scope: "s", Route: "POST /orders"}
}

var created = idempotency.Answer{Status: 201, Header: http.Header{"Location": {"/orders/1"}}, Body: []byte(`{"id":1}`)}

func (s *suite) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) claim(e idempotency.Entry) int64 {
	s.Helper()
	fence, found, err := s.store.Claim(s.Context(), e, lease, ttl)
	s.check(err)
	if found.State != idempotency.NotFound || fence <= 0 {
		s.Fatalf("claim: %s, fence %d; want it claimed", found.State, fence)
	}
	return fence
}

func (s *suite) answered(e idempotency.Entry) {
	s.Helper()
	s.check(s.store.Complete(s.Context(), e.ID, s.claim(e), created))
}

// want holds what Lookup says, and Claim too where that claims nothing.
func (s *suite) want(e idempotency.Entry, state idempotency.State) {
	s.Helper()
	found, err := s.store.Lookup(s.Context(), e)
	s.check(err)
	s.wantFinding("look up", found, state)
	if state == idempotency.NotFound {
		return
	}
	fence, found, err := s.store.Claim(s.Context(), e, lease, ttl)
	s.check(err)
	s.wantFinding("claim", found, state)
	if fence != 0 {
		s.Fatalf("claim of what is %s has fence %d", state, fence)
	}
}

func (s *suite) wantFinding(op string, found idempotency.Finding, state idempotency.State) {
	s.Helper()
	if found.State != state || (found.Answer != nil) != (state == idempotency.Matching) {
		s.Fatalf("%s: %s with answer %v; want %s", op, found.State, found.Answer, state)
	}
	if found.Answer != nil && !reflect.DeepEqual(*found.Answer, created) {
		s.Fatalf("%s: answer %+v; want %+v", op, *found.Answer, created)
	}
}

func notFound(s *suite) { s.want(Entry("k", "a"), idempotency.NotFound) }

func storedAndMatching(s *suite) {
	s.answered(Entry("k", "a"))
	s.want(Entry("k", "a"), idempotency.Matching)
	s.want(Entry("other", "a"), idempotency.NotFound)
}

func conflicting(s *suite) {
	s.answered(Entry("k", "a"))
	s.want(Entry("k", "b"), idempotency.Conflicting)
	s.want(Entry("k", "a"), idempotency.Matching)
}

func inProgress(s *suite) {
	s.claim(Entry("k", "a"))
	s.want(Entry("k", "a"), idempotency.InProgress)
}

func claimOfAnotherRequestConflicts(s *suite) {
	s.claim(Entry("k", "a"))
	s.want(Entry("k", "b"), idempotency.Conflicting)
}

func oneOfManyClaims(s *suite) {
	const many = 32
	var claims sync.WaitGroup
	fences := make(chan int64, many)
	barrier := make(chan struct{})
	for range many {
		claims.Go(func() {
			<-barrier
			fence, _, err := s.store.Claim(s.Context(), Entry("k", "a"), lease, ttl)
			if err != nil {
				s.Error(err)
			}
			if fence != 0 {
				fences <- fence
			}
		})
	}
	close(barrier)
	claims.Wait()
	if len(fences) != 1 {
		s.Fatalf("%d of %d claims were given; want 1", len(fences), many)
	}
}

func releasedIsNotFound(s *suite) {
	first := s.claim(Entry("k", "a"))
	s.check(s.store.Release(s.Context(), Entry("k", "a").ID, first))
	s.want(Entry("k", "b"), idempotency.NotFound)
	if second := s.claim(Entry("k", "b")); second <= first {
		s.Fatalf("fence %d after %d", second, first)
	}
}

func leaseEnds(s *suite) {
	first := s.claim(Entry("k", "a"))
	s.kit.Pass(s.T, s.store, lease+time.Second)
	s.want(Entry("k", "a"), idempotency.NotFound)
	if second := s.claim(Entry("k", "a")); second <= first {
		s.Fatalf("fence %d after %d", second, first)
	}
}

func extendedLeaseLasts(s *suite) {
	e := Entry("k", "a")
	fence := s.claim(e)
	s.kit.Pass(s.T, s.store, lease/2)
	s.check(s.store.Extend(s.Context(), e.ID, fence, lease))
	s.kit.Pass(s.T, s.store, lease-time.Second)
	s.want(e, idempotency.InProgress)
	s.kit.Pass(s.T, s.store, 2*time.Second)
	s.check(s.store.Extend(s.Context(), e.ID, fence, lease)) // it is over, but nobody else's
	s.want(e, idempotency.InProgress)
}

func lostClaimChangesNothing(s *suite) {
	e := Entry("k", "a")
	old := s.claim(e)
	s.kit.Pass(s.T, s.store, lease+time.Second)
	fence := s.claim(e)
	s.lost(s.store.Extend(s.Context(), e.ID, old, lease))
	s.lost(s.store.Complete(s.Context(), e.ID, old, idempotency.Answer{Status: 200}))
	s.check(s.store.Release(s.Context(), e.ID, old))
	s.want(e, idempotency.InProgress)
	s.check(s.store.Complete(s.Context(), e.ID, fence, created))
	s.lost(s.store.Complete(s.Context(), e.ID, old, idempotency.Answer{Status: 200}))
	s.lost(s.store.Extend(s.Context(), e.ID, fence, lease))
	s.check(s.store.Release(s.Context(), e.ID, fence))
	s.want(e, idempotency.Matching)
}

func (s *suite) lost(err error) {
	s.Helper()
	if !errors.Is(err, idempotency.ErrClaimLost) {
		s.Fatalf("%v; want ErrClaimLost", err)
	}
}

func completeTwice(s *suite) {
	e := Entry("k", "a")
	fence := s.claim(e)
	s.check(s.store.Complete(s.Context(), e.ID, fence, created))
	s.check(s.store.Complete(s.Context(), e.ID, fence, created))
	s.want(e, idempotency.Matching)
}

func expiredIsNeverUsed(s *suite) {
	e := Entry("k", "a")
	s.answered(e)
	s.kit.Pass(s.T, s.store, ttl-time.Second)
	s.want(e, idempotency.Matching)
	s.kit.Pass(s.T, s.store, 2*time.Second)
	s.want(e, idempotency.NotFound)
	s.want(Entry("k", "b"), idempotency.NotFound)
	s.answered(Entry("k", "b")) // in the place of what was never swept
	s.want(e, idempotency.Conflicting)
	s.kit.Pass(s.T, s.store, ttl-time.Second)
	s.want(Entry("k", "b"), idempotency.Matching)
}

func sweepTakesExpiredOnly(s *suite) {
	const old = 5
	for i := range old {
		s.answered(Entry(fmt.Sprint(i), "a"))
	}
	s.kit.Pass(s.T, s.store, ttl/2)
	s.answered(Entry("young", "a"))
	s.kit.Pass(s.T, s.store, ttl/2+time.Second)
	s.claim(Entry("0", "a")) // again, and so no more old
	for _, want := range []int{3, 1, 0} {
		n, err := s.store.Sweep(s.Context(), 3)
		s.check(err)
		if n != want {
			s.Fatalf("swept %d; want %d", n, want)
		}
	}
	s.want(Entry("young", "a"), idempotency.Matching)
	s.want(Entry("0", "a"), idempotency.InProgress)
}

// A claim that outlasts its record's time is its owner's still.
func sweepLeavesClaims(s *suite) {
	e := Entry("k", "a")
	fence, _, err := s.store.Claim(s.Context(), e, 2*ttl, ttl)
	s.check(err)
	s.kit.Pass(s.T, s.store, ttl+time.Second)
	if n, err := s.store.Sweep(s.Context(), 10); err != nil || n != 0 {
		s.Fatalf("swept %d, %v; want 0", n, err)
	}
	s.check(s.store.Complete(s.Context(), e.ID, fence, created))
}

// An owner that comes back after its key was forgotten is refused, too.
func fencesGrowAfterASweep(s *suite) {
	e := Entry("k", "a")
	old := s.claim(e)
	s.kit.Pass(s.T, s.store, ttl+time.Second)
	if n, err := s.store.Sweep(s.Context(), 10); err != nil || n != 1 {
		s.Fatalf("swept %d, %v; want 1", n, err)
	}
	if fence := s.claim(e); fence <= old {
		s.Fatalf("fence %d after %d", fence, old)
	}
	s.lost(s.store.Complete(s.Context(), e.ID, old, created))
}

func answerKeepsItsBytes(s *suite) {
	e := Entry("k", "a")
	want := idempotency.Answer{Status: 204, Header: http.Header{"X-Raw": {"caf\xe9", "second"}, "Etag": {`"a,b"`}},
		Body: []byte{0, 0xff, '\r', '\n', 0}}
	s.check(s.store.Complete(s.Context(), e.ID, s.claim(e), want))
	found, err := s.store.Lookup(s.Context(), e)
	s.check(err)
	if found.Answer == nil || !reflect.DeepEqual(*found.Answer, want) {
		s.Fatalf("answer %+v; want %+v", found.Answer, want)
	}
}

func errorKind(t *testing.T, kind idempotency.ErrorKind, s idempotency.Store) {
	_, err := s.Lookup(t.Context(), Entry("k", "a"))
	var failed *idempotency.StoreError
	if !errors.As(err, &failed) || failed.Kind != kind {
		t.Fatalf("%v; want an error of kind %s", err, kind)
	}
}
