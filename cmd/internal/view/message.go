package view

import (
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Message is a message and what has become of it.
type Message struct {
	ID           string     `json:"id" doc:"A UUID."`
	RawID        *string    `json:"raw_id" doc:"The ID as the producer wrote it, where that was no UUID."`
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
	Content      *Content   `json:"content,omitempty" doc:"With content=true, and for one message."`
}

// Messages are a page of messages.
type Messages struct {
	Messages []Message `json:"messages"`
	Next     *string   `json:"next" doc:"The cursor of the next page; null on the last one."`
}

// MessageOf has content up to limit bytes of each value; 0: none.
func MessageOf(m *operate.Listed, limit int) Message {
	out := storedMessage(&m.Stored, m.Handler)
	out.Status, out.DueAt, out.Bytes = string(m.Status), Moment(m.DueAt), m.Bytes
	if limit > 0 {
		out.Content = contentOf(&m.Message, limit)
	}
	return out
}

func storedMessage(m *operate.Stored, handler string) Message {
	c := &m.Message
	return Message{ID: c.ID.String(), RawID: OrNull(c.RawID), Handler: handler, Tenant: c.Tenant, Topic: c.Topic,
		Partition: c.Partition,
		Offset:    c.Offset, Status: string(statusOf(m)), ProducedAt: Moment(c.Timestamp),
		RawTimestamp: OrNull(c.RawTimestamp),
		ReceivedAt:   Moment(m.ReceivedAt), Since: Moment(m.At),
		Attempts: m.Attempts, Reason: OrNull(m.Reason), Error: OrNull(m.Error), Bytes: storedBytes(c)}
}

// storedBytes is the size of a message as it is stored.
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

// ConflictOf has content up to limit bytes of each value; 0: none.
func ConflictOf(c *operate.ConflictCopy, limit int) Conflict {
	m := &c.Message
	out := Conflict{ID: m.ID.String(), Handler: c.Handler, Tenant: m.Tenant, Topic: m.Topic, Partition: m.Partition,
		Offset:     m.Offset,
		ProducedAt: Moment(m.Timestamp), RawTimestamp: OrNull(m.RawTimestamp), SeenAt: Moment(c.SeenAt),
		Bytes: storedBytes(m)}
	if limit > 0 {
		out.Content = contentOf(m, limit)
	}
	return out
}

// Backlog is what waits in Postgres, by handler.
type Backlog struct {
	Handlers []HandlerBacklog `json:"handlers"`
}

// HandlerBacklog is what one handler has not done.
type HandlerBacklog struct {
	Handler  string     `json:"handler"`
	Pending  int64      `json:"pending" doc:"Parked, with no attempt that failed."`
	Failed   int64      `json:"failed" doc:"Parked, for an attempt after one that failed."`
	Dead     int64      `json:"dead" doc:"Dead letters."`
	Lanes    int64      `json:"lanes" doc:"Queues of what is parked."`
	OldestAt *time.Time `json:"oldest_at" doc:"Since when the oldest parked message has waited."`
	Capped   bool       `json:"capped" doc:"There are more: of each kind 100001 are counted at most."`
}

// BacklogOf is one handler's backlog.
func BacklogOf(b *operate.Backlog) HandlerBacklog {
	return HandlerBacklog{b.Handler, b.Pending, b.Failed, b.Dead, b.Lanes, Moment(b.OldestAt), b.Capped}
}

// AuditRecord is one thing that was done by hand.
type AuditRecord struct {
	At        time.Time `json:"at"`
	Actor     string    `json:"actor"`
	Action    string    `json:"action"`
	Why       string    `json:"why"`
	Login     *string   `json:"login" doc:"Who was logged in to Postgres, the program's login say; null for what was done before it was kept."`
	Handler   *string   `json:"handler"`
	Tenant    *string   `json:"tenant"`
	MessageID *string   `json:"message_id"`
	Subject   *string   `json:"subject" doc:"What it was done to, where that was no message: topic orders, say."`
}

// Audit is a page of records.
type Audit struct {
	Audit []AuditRecord `json:"audit"`
	Next  *string       `json:"next" doc:"The cursor of the next page; null on the last one."`
}

// AuditOf is one record.
func AuditOf(a *operate.AuditRecord) AuditRecord {
	return AuditRecord{a.At.UTC(), a.Actor, a.Action, a.Why, OrNull(a.Login), OrNull(a.Handler), OrNull(a.Tenant),
		idOrNull(a.MessageID), OrNull(a.Subject)}
}

// Pause is something that is paused.
type Pause struct {
	Kind  string    `json:"kind" enum:"topic,partition,handler"`
	Name  string    `json:"name" doc:"The topic's or the handler's; a partition's is TOPIC/N."`
	At    time.Time `json:"at"`
	Actor string    `json:"actor"`
	Why   string    `json:"why"`
}

// Pauses are what is paused in the inbox.
type Pauses struct {
	Pauses []Pause `json:"pauses"`
}

// PauseOf is one pause.
func PauseOf(p *dedup.Pause) Pause {
	return Pause{string(p.Kind), p.Name(), p.At.UTC(), p.Actor, p.Why}
}

// Hold is something that waits.
type Hold struct {
	Kind     string    `json:"kind" enum:"partition,topic,handler,group,inbox,broker,replay,dead_topic,start"`
	Name     string    `json:"name"`
	Held     string    `json:"held" doc:"Why: a code, as in the page OPERATIONS."`
	Since    time.Time `json:"since"`
	Means    string    `json:"means" doc:"What the code says."`
	Reason   string    `json:"reason" doc:"What the last try failed by."`
	Do       string    `json:"do" doc:"What to do about it."`
	Decision bool      `json:"decision" doc:"It ends only by a person's decision."`
	Tries    int       `json:"tries"`
}

// HoldOf is a hold with what its code means.
func HoldOf(h *holds.Hold) Hold {
	e := h.Entry()
	return Hold{string(h.Kind), h.Name, h.Code, h.Since.UTC(), e.Means, h.Reason, e.Do, e.Decision, h.Tries}
}

// List gives a list that is never null.
func List[T, U any](list []T, f func(*T) U) []U {
	out := make([]U, len(list))
	for i := range list {
		out[i] = f(&list[i])
	}
	return out
}
