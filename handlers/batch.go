package handlers

import (
	"errors"

	"github.com/firstseen/firstseen/dedup"
)

// Batch is a run of messages of one partition.
type Batch struct {
	// Position moves to Next when the batch commits.
	Position *dedup.Position
	Next     int64
	// LeaderEpoch is that of the last message before Next; nil: not known. See dedup.Batch.
	LeaderEpoch *int32
	// Messages are in the order of their offsets. Empty: the position moves over what the broker keeps for
	// itself.
	Messages []dedup.Message
	// Replayed says that the messages are read again, after newer ones: see dedup.Batch. That a handler is paused does
	// not concern them.
	Replayed bool
	// Apart says that one of the messages may take down what handles it. No handler is called for those that are new:
	// they are parked, and workers of lanes handle each by itself.
	Apart bool
}

// Result counts what became of a batch's messages, each once for every handler of its topic.
type Result struct {
	// New messages were handled.
	New int
	// Duplicates were seen before.
	Duplicates int
	// Parked messages wait in their lane: their handler failed, an earlier one of their key is unfinished, or their
	// handler is a detached one, or paused.
	Parked int
	// Dead messages went to the dead letters: they have no usable ID, or their handler gave them up.
	Dead int
	// Conflicts came under an ID that was seen with another content.
	Conflicts int
	// Buried messages are copies of dead letters.
	Buried int
}

// ErrNoID is returned where a message has no ID, or one that stands for none: all but the first of them would be taken
// for its copies. Find one by identity.Rule, or say by dedup.Message.Refuse that there is none.
var ErrNoID = errors.New("the message's ID is the nil or the max UUID, which stand for no ID")
