package view

import (
	"time"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Explanation answers the question for an ID, a place or an idempotency key.
type Explanation struct {
	Asked     string     `json:"asked"`
	Inbox     string     `json:"inbox"`
	Now       time.Time  `json:"now"`
	Sentences []string   `json:"sentences" doc:"What is known, to be read in this order."`
	Seen      []Sighting `json:"seen" doc:"What is known in each scope. Empty: the ID was never seen."`
	Unseen    []string   `json:"unseen" doc:"Handlers of the inbox that have not seen the ID, where another one has: those that have got messages of its topic lately."`
	Place     *Place     `json:"place" doc:"What is known of the place; null where one was not asked for."`
	Requests  []Request  `json:"requests" doc:"HTTP requests with the idempotency key, where one was asked for."`

	Waiting     []Message  `json:"waiting" doc:"Messages of the ID that wait in the outbox, where no relay has taken them yet."`
	Caused      []Message  `json:"caused" doc:"Messages of the outbox that handlers have added for it, in their order."`
	CausedUntil *time.Time `json:"caused_until" doc:"Caused has none that was sent after this; null: it has all that are kept."`
}

// Request is an HTTP request with an idempotency key, without its body and key.
type Request struct {
	Tenant     string     `json:"tenant" doc:"Empty, as scope and route, where a new key's transaction is not over."`
	Scope      string     `json:"scope" doc:"The caller's own part of the tenant."`
	Route      string     `json:"route" doc:"Method and route."`
	State      string     `json:"state" doc:"answered, running, abandoned, open or expired."`
	Status     *int       `json:"status" doc:"The answer's; null: there is none."`
	Fence      int64      `json:"fence" doc:"The number of the last claim on the key."`
	LeaseUntil *time.Time `json:"lease_until" doc:"When the claim of a process ends, or ended; null where none has one."`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at" doc:"When the key counts no more; null where that shows later."`
}

// Sighting tells of an ID in one scope.
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

// Place tells of an offset.
type Place struct {
	Topic        string     `json:"topic"`
	Partition    int32      `json:"partition"`
	Offset       int64      `json:"offset"`
	Consumers    []Position `json:"consumers" doc:"Where those stand that have a position in the partition."`
	Conflict     bool       `json:"conflict" doc:"What lay there came under a known ID with another content."`
	SearchedFrom *time.Time `json:"searched_from" doc:"How far back the inbox was read for it; null: it was not."`
}

// ExplanationOf leaves out the contents of messages. Rules, which may be nil, hide errors.
func ExplanationOf(e *operate.Explanation, rules *mask.Rules) Explanation {
	if rules != nil {
		e.HideErrors(rules.Error)
	}
	look := Look{Mask: rules}
	same := func(s *string) string { return *s }
	return Explanation{Asked: e.Asked, Inbox: e.Inbox, Now: e.Now.UTC(), Sentences: List(e.Sentences, same),
		Seen: List(e.Seen, look.sightingOf), Unseen: List(e.Unseen, same), Place: placeOf(e.Place),
		Requests: List(e.Requests, requestOf), Waiting: List(e.Waiting, look.bareMessageOf), Caused: List(e.Caused, look.bareMessageOf),
		CausedUntil: Moment(e.CausedUntil)}
}

// bareMessageOf is a message without its content.
func (l Look) bareMessageOf(m *operate.Listed) Message { return MessageOf(m, l) }

func requestOf(r *operate.Request) Request {
	out := Request{Tenant: r.Tenant, Scope: r.Scope, Route: r.Route, State: string(r.State), Fence: r.Fence,
		LeaseUntil: Moment(r.LeaseUntil), CreatedAt: r.CreatedAt.UTC(), ExpiresAt: Moment(r.ExpiresAt)}
	if r.Status != 0 {
		out.Status = &r.Status
	}
	return out
}

func placeOf(p *operate.Place) *Place {
	if p == nil {
		return nil
	}
	return &Place{p.Topic, p.Partition, p.Offset, List(p.Consumers, positionOf), p.Conflict, Moment(p.SearchedFrom)}
}

func (l Look) sightingOf(f *operate.Sighting) Sighting {
	out := Sighting{Inbox: f.Inbox, Handler: f.Handler, Tenant: f.Tenant, FirstSeenAt: f.FirstSeenAt.UTC(),
		Conflicts: List(f.Conflicts, l.bareConflictOf),
		Audit:     List(f.Audit, auditEntryOf)}
	if f.Stored != nil {
		m := l.storedMessage(f.Stored, f.Inbox, f.Handler)
		out.Message = &m
	}
	if lane := f.Lane; lane != nil {
		out.Lane = &Lane{lane.DueAt.UTC(), lane.Claims, lane.Ahead, laneHeadOf(&lane.Head)}
		out.Message.DueAt = Moment(lane.DueAt)
	}
	return out
}

func laneHeadOf(m *operate.Stored) LaneHead {
	return LaneHead{m.Message.ID.String(), m.Message.Topic, m.Message.Partition, m.Message.Offset, m.Attempts,
		OrNull(m.Reason), OrNull(m.Error)}
}
