package consumer

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wire"
)

// startFacts are what is known of a partition when its position has been acquired.
type startFacts struct {
	committed        wire.Reading // valid where hasCommit
	hasCommit        bool
	position         wire.Reading // valid where hasPosition
	hasPosition      bool
	positionID       uuid.UUID // the topic that the position was set in
	topicID          uuid.UUID // the topic as it is now
	onReset          Policy
	onPostgresBehind Policy
}

// start is where to begin, and what an operator should hear about it.
type start struct {
	offset int64 // or earliestOffset
	// read is what the log must still be: up to the offset, or beyond it, to the position.
	read wire.Reading
	warn string
	hold error // do not begin
}

// decide picks a partition's first offset. Whatever it picks is safe for effects, as what was seen is a duplicate;
// the point is that nothing is skipped that nobody decided to skip. The first start of a topic is decided before, by
// session.begin.
func (f *startFacts) decide() start {
	recreated := f.hasPosition && f.positionID != uuid.Nil && f.topicID != uuid.Nil && f.positionID != f.topicID
	switch {
	case recreated && f.onReset == Restart:
		return start{offset: wire.EarliestOffset, warn: "the topic was deleted and created again: starting from its first message"}
	case recreated:
		return start{hold: holding.As(HeldTopicReset,
			fmt.Errorf("the topic was deleted and created again (it was %s and is %s)", f.positionID, f.topicID))}
	case f.hasPosition && f.hasCommit && f.committed.Offset > f.position.Offset:
		return f.postgresBehind()
	case f.hasPosition && f.hasCommit && f.committed.Offset < f.position.Offset:
		if f.committed.Epoch == nil {
			return start{offset: f.committed.Offset, read: f.position}
		}
		return start{offset: f.committed.Offset, read: f.committed}
	case f.hasPosition:
		return start{offset: f.position.Offset, read: f.position}
	case f.hasCommit:
		return start{offset: wire.EarliestOffset, warn: "Kafka has a committed offset and Postgres, which knows the topic, no position: " +
			"Postgres lost it; starting from the first message"}
	}
	return start{offset: wire.EarliestOffset} // a partition that was added to the topic
}

func (f *startFacts) postgresBehind() start {
	if f.onPostgresBehind == Committed {
		return start{offset: f.committed.Offset, read: f.committed, warn: fmt.Sprintf("the position in Postgres is behind the committed offset: "+
			"SKIPPING %d to %d, as configured", f.position.Offset, f.committed.Offset-1)}
	}
	return start{offset: f.position.Offset, read: f.position, warn: fmt.Sprintf("the position in Postgres, %d, is behind the committed offset, %d: Postgres was "+
		"set back, or the group moved forward by hand; starting from the position (to skip on purpose, set on_postgres_behind: committed)",
		f.position.Offset, f.committed.Offset)}
}
