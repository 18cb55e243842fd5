package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
)

// Batch is a run of messages of one topic: of one partition, or from elsewhere.
type Batch struct {
	// Position moves to Next when the batch commits. Nil for messages that come from elsewhere than a partition.
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
	// Only names the handler that is given the messages, and the others of the topic are not. Default: all are.
	Only string
	// Apart says that one of the messages may take down what handles it. No handler is called for those that are new:
	// they are parked, and workers of lanes handle each by itself.
	Apart bool
	// Queued says that no handler is called in the batch's transaction: what is new is parked, due at once, and workers
	// of lanes handle it.
	Queued bool
	// Created, if set, is called in the transaction before any handler, with the messages that are new to at least one.
	// What it does stands with the transaction, whatever handlers fail on; its error ends it. Where the transaction is
	// run again, so is Created. Where no message is new it is not called, and the transaction leaves nothing behind, no
	// conflict either.
	Created func(ctx context.Context, tx pgx.Tx, fresh []dedup.Message) error
}

// created calls Created. It says whether there is anything to go on for: where somebody is to be told, that something
// is new.
func (b *Batch) created(ctx context.Context, tx *dedup.Tx, entries []dedup.Entry) (some bool, err error) {
	if b.Created == nil {
		return true, nil
	}
	fresh := make([]bool, len(b.Messages))
	for i := range entries {
		if entries[i].Outcome == dedup.New {
			fresh[i%len(fresh)], some = true, true
		}
	}
	if !some {
		return false, nil
	}
	var ms []dedup.Message
	for i, is := range fresh {
		if is {
			ms = append(ms, b.Messages[i])
		}
	}
	if err := b.Created(ctx, tx.Handler(), ms); err != nil {
		return true, fmt.Errorf("note what is created: %w", err)
	}
	return true, nil
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
