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
	Handler      string     `json:"handler"`
	Tenant       string     `json:"tenant"`
	Topic        string     `json:"topic"`
	Partition    int32      `json:"partition"`
	Offset       int64      `json:"offset"`
	Status       string     `json:"status" enum:"pending,failed,processed,dead"`
	ProducedAt   *time.Time `json:"produced_at" doc:"Null where the record has no timestamp, and where that is no time of the years 1 to 9999."`
	RawTimestamp *int64     `json:"raw_timestamp" doc:"The record's timestamp, milliseconds since 1970, where that is no time of the years 1 to 9999; else null."`
	ReceivedAt   *time.Time `json:"received_at" doc:"When its ID was first seen."`
	Since        *time.Time `json:"since" doc:"When it was parked, processed or given up."`
	DueAt        *time.Time `json:"due_at" doc:"When its lane is tried next, where it is parked."`
	Attempts     int        `json:"attempts" doc:"Failed ones."`
	Reason       *string    `json:"reason" doc:"The code of the last failure."`
	Error        *string    `json:"error" doc:"The text of the last failure."`
	Bytes        int        `json:"bytes" doc:"The size of key, headers and value."`
	Content      *Content   `json:"content,omitempty" doc:"With content=true, and where one message is asked for."`
}

// Messages are a page of messages.
type Messages struct {
	Messages []Message `json:"messages"`
	Next     *string   `json:"next" doc:"The cursor of the next page; null on the last one."`
}

// MessagesOf is a page, with content up to limit bytes of each value; 0: none, Whole: all.
func MessagesOf(found []operate.Listed, next operate.Cursor, limit int) Messages {
	return Messages{List(found, func(m *operate.Listed) Message { return MessageOf(m, limit) }), OrNull(string(next))}
}

// MessageOf has content up to limit bytes of each value; 0: none, Whole: all.
func MessageOf(m *operate.Listed, limit int) Message {
	out := storedMessage(&m.Stored, m.Inbox, m.Handler)
	out.Status, out.DueAt, out.Bytes = string(m.Status), Moment(m.DueAt), m.Bytes
	if limit > 0 {
		out.Content = contentOf(&m.Message, limit)
	}
	return out
}

func storedMessage(m *operate.Stored, inbox, handler string) Message {
	c := &m.Message
	return Message{ID: c.ID.String(), RawID: OrNull(c.RawID), Inbox: inbox, Handler: handler, Tenant: c.Tenant,
		Topic: c.Topic, Partition: c.Partition, Offset: c.Offset, Status: string(statusOf(m)),
		ProducedAt: Moment(c.Timestamp), RawTimestamp: OrNull(c.RawTimestamp), ReceivedAt: Moment(m.ReceivedAt),
		Since:    Moment(m.At),
		Attempts: m.Attempts, Reason: OrNull(m.Reason), Error: OrNull(m.Error), Bytes: storedBytes(c)}
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
	Bytes        int        `json:"bytes"`
	Content      *Content   `json:"content,omitempty" doc:"With content=true."`
}

// Conflicts are a page of conflicts.
type Conflicts struct {
	Conflicts []Conflict `json:"conflicts"`
	Next      *string    `json:"next" doc:"The cursor of the next page; null on the last one."`
}

// ConflictsOf is a page, with content up to limit bytes of each value; 0: none, Whole: all.
func ConflictsOf(found []operate.ConflictCopy, next operate.Cursor, limit int) Conflicts {
	return Conflicts{List(found, func(c *operate.ConflictCopy) Conflict { return conflictOf(c, limit) }),
		OrNull(string(next))}
}

func conflictOf(c *operate.ConflictCopy, limit int) Conflict {
	m := &c.Message
	out := Conflict{ID: m.ID.String(), Inbox: c.Inbox, Handler: c.Handler,
		Tenant: m.Tenant, Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, ProducedAt: Moment(m.Timestamp),
		RawTimestamp: OrNull(m.RawTimestamp), SeenAt: Moment(c.SeenAt), Bytes: storedBytes(m)}
	if limit > 0 {
		out.Content = contentOf(m, limit)
	}
	return out
}

// ConflictPairs are the conflicts of an ID, each beside the message that won.
type ConflictPairs struct {
	Conflicts []ConflictPair `json:"conflicts"`
}

// ConflictPair is a copy and the message that won, whole.
type ConflictPair struct {
	First *Message `json:"first" doc:"Null where it is kept no more."`
	Copy  Conflict `json:"copy"`
}

// ConflictPairOf is a copy beside the message that won; nil: it is kept no more.
func ConflictPairOf(c *operate.ConflictCopy, first *operate.Stored) ConflictPair {
	out := ConflictPair{Copy: conflictOf(c, Whole)}
	if first != nil {
		m := storedMessage(first, c.Inbox, c.Handler)
		m.Content = contentOf(&first.Message, Whole)
		out.First = &m
	}
	return out
}
