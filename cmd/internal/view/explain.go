package view

import (
	"time"

	"github.com/firstseen/firstseen/dedup/operate"
)

// Explanation is what is known of an ID or a place.
type Explanation struct {
	Asked     string     `json:"asked"`
	Inbox     string     `json:"inbox"`
	Now       time.Time  `json:"now"`
	Sentences []string   `json:"sentences" doc:"What is known, to be read in this order."`
	Seen      []Sighting `json:"seen" doc:"What is known in each scope. Empty: the ID was never seen."`
	Unseen    []string   `json:"unseen" doc:"Handlers of the inbox that have not seen the ID, where another one has."`
	Place     *Place     `json:"place" doc:"What is known of the place; null where an ID was asked for."`
}

// Sighting is what is known of an ID in one scope.
type Sighting struct {
	Inbox       string       `json:"inbox"`
	Handler     string       `json:"handler"`
	Tenant      string       `json:"tenant"`
	FirstSeenAt time.Time    `json:"first_seen_at"`
	Message     *Message     `json:"message" doc:"Null where it is kept no more."`
	Lane        *Lane        `json:"lane" doc:"What it waits in, where it is parked."`
	Conflicts   []Conflict   `json:"conflicts" doc:"Later copies with another content, the last first."`
	Audit       []AuditEntry `json:"audit" doc:"What was done to it by hand."`
}

// Lane is the queue that a parked message waits in.
type Lane struct {
	DueAt  time.Time `json:"due_at"`
	Claims int       `json:"claims" doc:"How often a worker took it since it last got anywhere."`
	Ahead  int       `json:"ahead" doc:"Messages before this one."`
	Head   LaneHead  `json:"head" doc:"The first message."`
}

// LaneHead is the message that is tried next in a lane.
type LaneHead struct {
	ID        string  `json:"id"`
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Attempts  int     `json:"attempts" doc:"Failed ones."`
	Reason    *string `json:"reason" doc:"The code of the last failure."`
	Error     *string `json:"error" doc:"The text of the last failure."`
}

// Place is what is known of an offset.
type Place struct {
	Topic        string     `json:"topic"`
	Partition    int32      `json:"partition"`
	Offset       int64      `json:"offset"`
	Consumers    []Position `json:"consumers" doc:"Where those stand that have a position in the partition."`
	Conflict     bool       `json:"conflict" doc:"What lay there came under a known ID with another content."`
	SearchedFrom *time.Time `json:"searched_from" doc:"How far back the inbox was read for it; null: it was not."`
}

// ExplanationOf is what is known, without the contents of messages.
func ExplanationOf(e *operate.Explanation) Explanation {
	same := func(s *string) string { return *s }
	return Explanation{Asked: e.Asked, Inbox: e.Inbox, Now: e.Now.UTC(), Sentences: List(e.Sentences, same),
		Seen: List(e.Seen, sightingOf), Unseen: List(e.Unseen, same), Place: placeOf(e.Place)}
}

func placeOf(p *operate.Place) *Place {
	if p == nil {
		return nil
	}
	return &Place{p.Topic, p.Partition, p.Offset, List(p.Consumers, positionOf), p.Conflict, Moment(p.SearchedFrom)}
}

func sightingOf(f *operate.Sighting) Sighting {
	out := Sighting{Inbox: f.Inbox, Handler: f.Handler, Tenant: f.Tenant, FirstSeenAt: f.FirstSeenAt.UTC(),
		Conflicts: List(f.Conflicts, func(c *operate.ConflictCopy) Conflict { return conflictOf(c, 0) }),
		Audit:     List(f.Audit, auditEntryOf)}
	if f.Stored != nil {
		m := storedMessage(f.Stored, f.Inbox, f.Handler)
		out.Message = &m
	}
	if l := f.Lane; l != nil {
		out.Lane = &Lane{l.DueAt.UTC(), l.Claims, l.Ahead, laneHeadOf(&l.Head)}
		out.Message.DueAt = Moment(l.DueAt)
	}
	return out
}

func laneHeadOf(m *operate.Stored) LaneHead {
	return LaneHead{m.Message.ID.String(), m.Message.Topic, m.Message.Partition, m.Message.Offset, m.Attempts,
		OrNull(m.Reason), OrNull(m.Error)}
}
