package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Entry is a request as a Store is asked about it.
type Entry struct {
	ID          ID
	Fingerprint Fingerprint
	// KeyHash is of the key alone, which no store is told.
	KeyHash [32]byte
	// Tenant, Scope and Route are for people who look.
	Tenant, Scope, Route string
}

// State is a key's state in a Store, for one request.
type State int

// The states.
const (
	// NotFound: nothing, or nothing that counts any more.
	NotFound State = iota
	// Matching: the same request was answered.
	Matching
	// Conflicting: another request has the key, answered or claimed.
	Conflicting
	// InProgress: the key is being worked on.
	InProgress
)

var stateNames = [...]string{"not found", "matching", "conflicting", "in progress"}

// String is the state in words.
func (s State) String() string { return stateNames[s] }

// Finding is a Store's answer for a request.
type Finding struct {
	State State
	// Answer is there where the state is Matching.
	Answer *Answer
}

// Store remembers requests by their keys, for [Claimed]: a claim is had by one caller at a time, until its lease is
// over, and bears a number, its fence, that is greater than those of all before it. [Postgres] is one;
// idempotencytest has another, in memory, and the tests that each must pass.
//
// All times are the store's own. Methods are safe for concurrent use; their errors are [*StoreError], but for
// [ErrClaimLost].
type Store interface {
	// Lookup says what is known of a request. It changes nothing, and never finds what has expired.
	Lookup(ctx context.Context, e Entry) (Finding, error)
	// Claim gives the key to the caller for lease: the state is NotFound then, and fence is its number. In any other
	// state nothing is claimed. What it remembers it forgets after ttl. It never waits for another claim to end.
	Claim(ctx context.Context, e Entry, lease, ttl time.Duration) (fence int64, found Finding, err error)
	// Extend has the claim last for lease from now, also one that is over and that nobody has taken.
	Extend(ctx context.Context, id ID, fence int64, lease time.Duration) error
	// Complete stores the answer and ends the claim. The same call again is no error.
	Complete(ctx context.Context, id ID, fence int64, a Answer) error
	// Release ends the claim: the key is as if it had never been seen. Of a claim that is lost it is no error.
	Release(ctx context.Context, id ID, fence int64) error
	// Sweep deletes up to limit of what has expired and is not claimed, and says how many.
	Sweep(ctx context.Context, limit int) (int, error)
}

// ErrClaimLost is returned where somebody else has claimed the key since, or has completed it.
var ErrClaimLost = errors.New("the claim on the idempotency key was lost to another request")

// ErrorKind is the kind of a store's error, by who has to act.
type ErrorKind string

// The kinds.
const (
	// KindConnection: the store was not reached, or did not answer. It passes.
	KindConnection ErrorKind = "connection"
	// KindQuery: the store refused what it was asked: a table or a right is missing, say.
	KindQuery ErrorKind = "query"
	// KindSerialisation: an answer could not be written down, or what is stored can't be read.
	KindSerialisation ErrorKind = "serialisation"
)

// StoreError is a Store's error.
type StoreError struct {
	Op   string // what was being done
	Kind ErrorKind
	Err  error
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("idempotency: %s: %s: %v", e.Op, e.Kind, e.Err)
}

// Unwrap is the cause.
func (e *StoreError) Unwrap() error { return e.Err }
