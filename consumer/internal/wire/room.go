package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup/memory"
)

// Room is the memory of one fetch at a time. It is taken before the request is sent; the answer and what is decoded of
// it use it up. Where that is more than was taken, room tries to take the rest and never waits for it: what found no
// room is left to the next fetch, and where that is everything the next one takes so much beforehand.
type Room struct {
	account *memory.Account // nil: there is what is free and no more

	mu    sync.Mutex // a connection's goroutine may outlive the fetch that it read for
	ended bool
	free  int    // taken and not used
	body  int    // used by the answer
	buf   []byte // where the answer is read to; kept for the next one

	size    int // of the answer
	decoded int // of it
	used    int // by what was decoded
	lacked  int // what it would have needed where it had no room first; nothing finds room after that

	needBody, needItem int // what the last fetch got nowhere without
}

// NewRoom makes a Room for fetches one after the other, on an account.
func NewRoom(account *memory.Account) *Room { return &Room{account: account} }

// NewFixedRoom has n bytes and no more.
func NewFixedRoom(n int) *Room { return &Room{free: n} }

// lackError says that there is no room for an answer.
type lackError struct{ size int }

func (e *lackError) Error() string { return fmt.Sprintf("no memory for an answer of %d bytes", e.size) }

// Begin waits for n bytes, or what the last fetch lacked if that is more, and takes them.
func (r *Room) Begin(ctx context.Context, n int) error {
	item := max(r.needBody, r.needItem)
	if need := r.needBody + r.needItem; item > 0 {
		n = max(n, need+need/16+64<<10) // some may have been produced since
	}
	if r.buf != nil && r.account.Short() {
		r.buf = nil
	}
	if err := r.account.Take(ctx, n, item); err != nil {
		return err
	}
	r.free, r.body, r.size, r.decoded, r.used, r.lacked, r.ended = n, 0, 0, 0, 0, 0, false
	return nil
}

// soon bounds BeginSoon's wait for memory.
const soon = time.Second

// BeginSoon is begin, with an error where that takes long.
func (r *Room) BeginSoon(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errors.New("all memory for fetched messages is in use"))
	defer cancel()
	return r.Begin(ctx, n)
}

// End gives back what no record keeps. Progress says that the fetch brought anything, if only a gap to move over; err
// is the fetch's. It returns whether the fetch got nowhere for want of memory.
func (r *Room) End(progress bool, err error) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	again = errors.As(err, new(*lackError))
	switch {
	case progress:
		r.needBody, r.needItem = 0, 0
	case err == nil && r.lacked > 0:
		again = true
		r.needBody, r.needItem = max(r.needBody, r.size), max(r.needItem, r.lacked)
	}
	r.account.Give(r.free + r.body)
	r.free, r.body, r.ended = 0, 0, true
	return again
}

// Successor is a room for the next fetch, after one that may be under way still.
func (r *Room) Successor() *Room {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Room{account: r.account, needBody: r.needBody, needItem: r.needItem}
}

// PerByte is the memory that a byte of the answer has cost, with the records that came out of it; 0: nothing was
// decoded.
func (r *Room) PerByte() float64 {
	if r.decoded == 0 {
		return 0
	}
	return 1 + float64(r.used)/float64(r.decoded)
}

// Short says that something had no room.
func (r *Room) Short() bool { return r.lacked > 0 }

// claim uses n bytes, and says whether they were there.
func (r *Room) claim(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lacked > 0 || !r.has(n) {
		return false
	}
	r.free -= n
	r.used += n
	return true
}

// claimStep is the least that is taken beyond what a fetch began with.
const claimStep = 256 << 10

func (r *Room) has(n int) bool {
	more := n - r.free
	if more <= 0 {
		return true
	}
	for _, step := range []int{max(more, claimStep), more} {
		if r.account != nil && r.account.Try(step) {
			r.free += step
			return true
		}
	}
	return false
}

// lack says that there is no room for n bytes. Whoever comes later in the answer gets none either: what was not served
// for longest comes first.
func (r *Room) lack(n int) error {
	if r.lacked == 0 {
		r.lacked = r.used + n
	}
	return errNoRoom
}

// Release gives back what was claimed and not kept.
func (r *Room) Release(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	r.used -= n
}

func (r *Room) allocate(size int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free, r.body = r.free+r.body, 0 // of an answer that broke off
	if r.ended || !r.has(size) {
		r.needBody = max(r.needBody, size)
		return nil, &lackError{size}
	}
	r.free, r.body, r.size = r.free-size, size, size
	if cap(r.buf) < size || cap(r.buf) > 2*size+keptBuffer {
		r.buf = nil
		r.buf = memory.Bytes(size)
	}
	return r.buf[:size], nil
}

// keepBody has a record keep the whole answer, and returns what that costs.
func (r *Room) keepBody() (cost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cost, r.body, r.buf = r.body, 0, nil
	r.used += cost
	return cost
}
