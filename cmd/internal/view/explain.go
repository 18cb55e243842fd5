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
}

// Sighting is what is known of an ID in one scope.
type Sighting struct {
	Inbox       string        `json:"inbox"`
	Handler     string        `json:"handler"`
	Tenant      string        `json:"tenant"`
	FirstSeenAt time.Time     `json:"first_seen_at"`
	Message     *Message      `json:"message" doc:"Null where it is kept no more."`
	Lane        *Lane         `json:"lane" doc:"What it waits in, where it is parked."`
	Conflicts   int           `json:"conflicts" doc:"Later copies with another content."`
	Audit       []AuditRecord `json:"audit" doc:"What was done to it by hand."`
}

// Lane is the queue that a parked message waits in.
type Lane struct {
	DueAt  time.Time `json:"due_at"`
	Claims int       `json:"claims" doc:"How often a worker took it since it last got anywhere."`
	Ahead  int       `json:"ahead" doc:"Messages before this one."`
	HeadID string    `json:"head_id" doc:"The ID of the first message."`
}

// ExplanationOf is what is known, without the rows that it was found in.
func ExplanationOf(e *operate.Explanation) Explanation {
	return Explanation{Asked: e.Asked, Inbox: e.Inbox, Now: e.Now.UTC(), Sentences: List(e.Sentences,
		func(s *string) string { return *s }),
		Seen: List(e.Seen, sightingOf), Unseen: List(e.Unseen, func(s *string) string { return *s })}
}

func sightingOf(f *operate.Sighting) Sighting {
	out := Sighting{Inbox: f.Inbox, Handler: f.Handler, Tenant: f.Tenant, FirstSeenAt: f.FirstSeenAt.UTC(),
		Conflicts: len(f.Conflicts),
		Audit:     List(f.Audit, func(a *operate.AuditEntry) AuditRecord { return AuditOf(&operate.AuditRecord{AuditEntry: *a}) })}
	if f.Stored != nil {
		m := storedMessage(f.Stored, f.Handler)
		out.Message = &m
	}
	if l := f.Lane; l != nil {
		out.Lane = &Lane{l.DueAt.UTC(), l.Claims, l.Ahead, l.Head.Message.ID.String()}
		out.Message.DueAt = Moment(l.DueAt)
	}
	return out
}
