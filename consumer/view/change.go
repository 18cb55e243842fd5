package view

import (
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Changed answers a change of messages.
type Changed struct {
	Action   string `json:"action" enum:"redrive,discard,rerun"`
	Messages int    `json:"messages" doc:"How many were changed, or would be."`
	DryRun   bool   `json:"dry_run"`
}

// RerunPreview answers a rerun's dry run.
type RerunPreview struct {
	Changed
	SearchedFrom *time.Time     `json:"searched_from" doc:"How far back the inbox was read; null where IDs were asked for."`
	First        []RerunMessage `json:"first" doc:"The first few, in the order of their places."`
	Missing      []MissingRerun `json:"missing" doc:"IDs that can't be rerun, the first hundred."`
}

// RerunMessage is a message that would be rerun.
type RerunMessage struct {
	ID         string     `json:"id"`
	Topic      string     `json:"topic"`
	Partition  int32      `json:"partition"`
	Offset     int64      `json:"offset"`
	ReceivedAt *time.Time `json:"received_at"`
}

// MissingRerun is an ID that can't be rerun.
type MissingRerun struct {
	ID  string `json:"id"`
	Why string `json:"why" enum:"unseen,parked,dead,dropped"`
}

func RerunPreviewOf(p *operate.RerunPreview) RerunPreview {
	return RerunPreview{Changed{"rerun", p.Messages, true}, Moment(p.SearchedFrom),
		List(p.First, func(m *operate.RerunMessage) RerunMessage {
			return RerunMessage{m.ID.String(), m.Topic, m.Partition, m.Offset, Moment(m.ReceivedAt)}
		}),
		List(p.Missing, func(m *operate.MissingRerun) MissingRerun { return MissingRerun{m.ID.String(), m.Why} })}
}

// PauseChanged answers a pause or a resume.
type PauseChanged struct {
	Inbox   string `json:"inbox"`
	Action  string `json:"action" enum:"pause,resume"`
	Kind    string `json:"kind" enum:"topic,partition,handler"`
	Name    string `json:"name" doc:"The topic's or the handler's; a partition's is TOPIC/N."`
	Changed bool   `json:"changed" doc:"False: it was so already."`
}

func PauseChangedOf(inbox, action string, p dedup.Pause, changed bool) PauseChanged {
	return PauseChanged{inbox, action, string(p.Kind), p.Name(), changed}
}

// AuditEntry is one thing that was done by hand.
type AuditEntry struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Why    string    `json:"why"`
	Login  *string   `json:"login" doc:"Who was logged in to Postgres, the program's login say; null for what was done before it was kept."`
}

// AuditRecord is one thing that was done by hand, and what to.
type AuditRecord struct {
	AuditEntry
	Handler   *string `json:"handler"`
	Tenant    *string `json:"tenant"`
	MessageID *string `json:"message_id"`
	Subject   *string `json:"subject" doc:"What it was done to, where that was no message: topic orders, say."`
}

// Audit is a page of records.
type Audit struct {
	Audit []AuditRecord `json:"audit"`
	Next  *string       `json:"next" doc:"The cursor of the next page; null on the last one."`
}

// AuditOf is a page of records.
func AuditOf(found []operate.AuditRecord, next operate.Cursor) Audit {
	return Audit{List(found, auditRecordOf), OrNull(string(next))}
}

func auditEntryOf(a *operate.AuditEntry) AuditEntry {
	return AuditEntry{a.At.UTC(), a.Actor, a.Action, a.Why, OrNull(a.Login)}
}

func auditRecordOf(a *operate.AuditRecord) AuditRecord {
	return AuditRecord{auditEntryOf(&a.AuditEntry), OrNull(a.Handler), OrNull(a.Tenant), idOrNull(a.MessageID),
		OrNull(a.Subject)}
}
