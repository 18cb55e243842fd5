package dedup

import (
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Outcome is accept's answer for one entry of a batch.
type Outcome uint8

// The outcomes. The zero value is Duplicate: an entry counts as new only where Postgres said so.
const (
	// Duplicate: the ID was seen before in its scope, in an earlier batch or earlier in this one.
	Duplicate Outcome = iota
	// New: the ID was never seen in its scope; if the transaction commits, it has been.
	New
	// Conflict: the ID was seen before, with another fingerprint. The first one won; Commit records this one.
	Conflict
	// Buried: the ID was seen before, and its message lies in the dead letters.
	Buried
)

// State is a message's state after its transaction.
type State uint8

// The states. The zero value is Processed.
const (
	// Processed: handled, never to be handled again.
	Processed State = iota
	// Parked: in its lane, to be handled later.
	Parked
	// Dead: given up, in the dead letters.
	Dead
)

// Entry is one message for one scope (see [Store.Scopes]), and what becomes of it. Accept sets Outcome; who opened the
// transaction sets the rest before Commit.
type Entry struct {
	Scope   int32
	Message *Message
	Outcome Outcome

	// Lane is the queue that the message belongs to (see [Ordering.Lane]). It is needed where State is not Processed.
	Lane  uuid.UUID
	State State
	// Attempts counts the attempts that failed.
	Attempts int
	// ParkedAt is when the message was parked first; zero where it was not.
	ParkedAt time.Time
	// Reason is a short code and Error the text of the last failure; empty where there was none.
	Reason, Error string
	// Due is the time from now to the lane's next attempt, where State is Parked.
	Due time.Duration
	// Alone says, where State is Parked, that the message may take down what handles it: ClaimLanes will give its
	// lane with Times more than 1.
	Alone bool
}

// Batch is one transaction's messages: of one partition, in the order of their offsets.
type Batch struct {
	// Position is moved to Next by the transaction. Nil for messages that come from elsewhere than a partition.
	Position *Position
	// Next is the offset after the last one that this batch covers, gaps and broker-internal records included.
	Next int64
	// LeaderEpoch is that of the last message before Next, or of what the broker keeps for itself there. Nil: not
	// known.
	LeaderEpoch *int32
	Entries     []Entry
	// Server is that of the entries' Scopes. Zero: nobody looks whether it is still the same.
	Server time.Time
	// Replayed says that newer messages of the partition may have been accepted before these: they wait only for
	// unfinished messages that are older.
	Replayed bool
}

// bytes is the size of what its commit has to send.
func (b *Batch) bytes() (n int) {
	for i := range b.Entries {
		n += b.Entries[i].Message.Size()
	}
	return n
}

// String names the batch for errors: topic/partition@first offset.
func (b *Batch) String() string {
	if p := b.Position; p != nil {
		return fmt.Sprintf("%s/%d@%d-%d", p.Topic, p.Partition, p.Next, b.Next)
	}
	return "batch of " + strconv.Itoa(len(b.Entries))
}
