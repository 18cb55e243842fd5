package view

import (
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Message is a message and what has become of it.
type Message struct {
	ID           string     `json:"id" doc:"A UUID."`
	RawID        *string    `json:"raw_id" doc:"The ID as the producer wrote it, where that was no UUID."`
	Inbox        string     `json:"inbox"`
	Handler      string     `json:"handler" doc:"Of a message of the outbox its destination; empty where no relay has taken it yet."`
	Tenant       string     `json:"tenant"`
	Topic        string     `json:"topic"`
	Partition    int32      `json:"partition"`
	Offset       int64      `json:"offset"`
	Status       string     `json:"status" enum:"pending,failed,processed,dead"`
	ProducedAt   *time.Time `json:"produced_at" doc:"Null where the record has no timestamp, and where that is no time of the years 1 to 9999."`
	RawTimestamp *int64     `json:"raw_timestamp" doc:"The record's timestamp, milliseconds since 1970, where that is no time of the years 1 to 9999; else null."`
	ReceivedAt   *time.Time `json:"received_at" doc:"When its ID was first seen."`
	Since        *time.Time `json:"since" doc:"When it was parked, processed or given up."`
	DueAt        *time.Time `json:"due_at" doc:"When its lane is tried next, where it is parked; or when a message of the outbox is to be sent."`
	Attempts     int        `json:"attempts" doc:"Failed ones."`
	Reason       *string    `json:"reason" doc:"The code of the last failure."`
	Error        *string    `json:"error" doc:"The text of the last failure."`
	Bytes        int        `json:"bytes" doc:"The size of key, headers and value; 0 where it would tell of what is hidden."`
	Content      *Content   `json:"content,omitempty" doc:"With content=true, and where one message is asked for."`
}

// Messages are a page of messages.
type Messages struct {
	Messages []Message `json:"messages"`
	Next     *string   `json:"next" doc:"The cursor of the next page; null on the last one."`
}

// MessagesOf is a page, as it is looked at.
func MessagesOf(found []operate.Listed, next operate.Cursor, look Look) Messages {
	return Messages{List(found, func(m *operate.Listed) Message { return MessageOf(m, look) }), OrNull(string(next))}
}

// MessageOf is a message, as it is looked at.
func MessageOf(m *operate.Listed, look Look) Message {
	out := look.storedMessage(&m.Stored, m.Inbox, m.Handler)
	out.Status, out.DueAt, out.Bytes = string(m.Status), Moment(m.DueAt), look.size(m.Message.Topic, m.Bytes)
	if look.Limit > 0 {
		out.Content = look.contentOf(&m.Message)
	}
	return out
}

func (l Look) storedMessage(m *operate.Stored, inbox, handler string) Message {
	c := &m.Message
	return Message{ID: c.ID.String(), RawID: OrNull(c.RawID), Inbox: inbox, Handler: handler, Tenant: c.Tenant,
		Topic: c.Topic, Partition: c.Partition, Offset: c.Offset, Status: string(statusOf(m)),
		ProducedAt: Moment(c.Timestamp), RawTimestamp: OrNull(c.RawTimestamp), ReceivedAt: Moment(m.ReceivedAt),
		Since:    Moment(m.At),
		Attempts: m.Attempts, Reason: OrNull(m.Reason), Error: OrNull(l.Mask.Error(c.Topic, m.Error)),
		Bytes: l.size(c.Topic, storedBytes(c))}
}

func storedBytes(m *dedup.Message) int {
	return len(m.Key) + len(m.Value) + len(dedup.AppendHeaders(nil, m.Headers))
}

func statusOf(m *operate.Stored) operate.Status {
	switch {
	case m.State == dedup.Parked && m.Attempts > 0:
		return operate.StatusFailed
	case m.State == dedup.Parked:
		return operate.StatusPending
	case m.State == dedup.Dead:
		return operate.StatusDead
	}
	return operate.StatusProcessed
}

// Conflict is a copy that came under a known ID with another content.
type Conflict struct {
	ID           string     `json:"id"`
	Inbox        string     `json:"inbox"`
	Handler      string     `json:"handler"`
	Tenant       string     `json:"tenant"`
	Topic        string     `json:"topic"`
	Partition    int32      `json:"partition"`
	Offset       int64      `json:"offset"`
	ProducedAt   *time.Time `json:"produced_at"`
	RawTimestamp *int64     `json:"raw_timestamp" doc:"As in Message."`
	SeenAt       *time.Time `json:"seen_at"`
	Bytes        int        `json:"bytes" doc:"0 where it would tell of what is hidden."`
	Content      *Content   `json:"content,omitempty" doc:"With content=true."`
}

// Conflicts are a page of conflicts.
type Conflicts struct {
	Conflicts []Conflict `json:"conflicts"`
	Next      *string    `json:"next" doc:"The cursor of the next page; null on the last one."`
}

// ConflictsOf is a page, as it is looked at; values are not decoded.
func ConflictsOf(found []operate.ConflictCopy, next operate.Cursor, look Look) Conflicts {
	look.Decode = nil
	return Conflicts{List(found, func(c *operate.ConflictCopy) Conflict {
		out := look.bareConflictOf(c)
		if look.Limit > 0 {
			out.Content = look.contentOf(&c.Message)
		}
		return out
	}), OrNull(string(next))}
}

func (l Look) bareConflictOf(c *operate.ConflictCopy) Conflict {
	m := &c.Message
	return Conflict{ID: m.ID.String(), Inbox: c.Inbox, Handler: c.Handler,
		Tenant: m.Tenant, Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, ProducedAt: Moment(m.Timestamp),
		RawTimestamp: OrNull(m.RawTimestamp), SeenAt: Moment(c.SeenAt), Bytes: l.size(m.Topic, storedBytes(m))}
}

// ConflictPairs are the conflicts of an ID, each beside the message that won.
type ConflictPairs struct {
	Conflicts []ConflictPair `json:"conflicts"`
}

// ConflictPair is a copy and the message that won.
type ConflictPair struct {
	First *Message `json:"first" doc:"Null where it is kept no more."`
	Copy  Conflict `json:"copy"`
}

// ConflictPairOf is a copy beside the message that won, which is nil where it is kept no more; values are not decoded. Of
// what is hidden it says whether both have the same.
func ConflictPairOf(c *operate.ConflictCopy, first *operate.Stored, look Look) ConflictPair {
	out := ConflictPair{Copy: look.bareConflictOf(c)}
	if look.Decode = nil; first == nil {
		out.Copy.Content = look.contentOf(&c.Message)
		return out
	}
	a, b := first.Message, c.Message
	maskedFirst, maskedCopy := look.Mask.ApplyBoth(&a, &b)
	m := look.storedMessage(first, c.Inbox, c.Handler)
	m.Content, out.Copy.Content = look.maskedContentOf(&a, maskedFirst), look.maskedContentOf(&b, maskedCopy)
	out.First = &m
	return out
}

// Unmasked are a message and its copies, with their contents, in each handler and tenant that was asked for.
type Unmasked struct {
	Messages  []Message  `json:"messages"`
	Conflicts []Conflict `json:"conflicts" doc:"Copies with another content, the last first."`
}

// UnmaskedOf shows so many bytes of each value at most.
func UnmaskedOf(found *operate.Unmasked, look Look) Unmasked {
	out := Unmasked{Messages: List(found.Waiting, look.bareMessageOf), Conflicts: []Conflict{}}
	for i := range found.Seen {
		f := &found.Seen[i]
		if f.Stored != nil {
			m := look.storedMessage(f.Stored, f.Inbox, f.Handler)
			m.Content = look.contentOf(&f.Stored.Message)
			out.Messages = append(out.Messages, m)
		}
		out.Conflicts = append(out.Conflicts, ConflictsOf(f.Conflicts, "", look).Conflicts...)
	}
	return out
}
