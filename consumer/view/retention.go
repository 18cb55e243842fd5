package view

import (
	"time"

	"github.com/firstseen/firstseen/consumer/retention"
	"github.com/firstseen/firstseen/dedup/operate"
)

// RetentionPlan says what retention would delete.
type RetentionPlan struct {
	At           time.Time          `json:"at"`
	Handlers     []RetentionHandler `json:"handlers"`
	Destinations []RetentionHandler `json:"destinations" doc:"Those of the outbox: the IDs of what was sent, and its idempotency keys."`
	InboxBefore  *time.Time         `json:"inbox_before" doc:"Days of the inbox that ended before go; null: it is kept for ever."`
	InboxDays    []InboxDay         `json:"inbox_days"`
	Answers      *int               `json:"answers_expired" doc:"Answers to HTTP requests whose time is over, counted up to 10,001; null: not known."`
}

// RetentionHandler says which of one handler's message IDs retention would delete.
type RetentionHandler struct {
	Handler       string     `json:"handler"`
	KeptSeconds   int64      `json:"kept_seconds" doc:"0: for ever."`
	ForgetsBefore *time.Time `json:"forgets_before" doc:"IDs first seen before go."`
	IDs           int64      `json:"ids_estimated"`
	Refused       []string   `json:"refused" doc:"Why they are kept all the same."`
}

// InboxDay is a day of the inbox, in UTC.
type InboxDay struct {
	Day   *string `json:"day"`
	Bytes int64   `json:"bytes"`
}

// RetentionEstimate is about how many IDs are old enough, by handler and by destination.
type RetentionEstimate struct{ Handlers, Destinations map[string]int64 }

// RetentionPlanOf is a plan, with how many IDs it is about, and how many answers have expired, if that is known.
func RetentionPlanOf(p *retention.Plan, ids RetentionEstimate, expired int, known bool) RetentionPlan {
	var answers *int
	if known {
		answers = &expired
	}
	return RetentionPlan{Answers: answers, At: p.At.UTC(), InboxBefore: Moment(p.InboxBefore),
		InboxDays:    List(p.Days, func(d *operate.InboxDay) InboxDay { return InboxDay{day(d.Day), d.Bytes} }),
		Handlers:     retentionHandlersOf(p.Handlers, ids.Handlers),
		Destinations: retentionHandlersOf(p.Destinations, ids.Destinations)}
}

func retentionHandlersOf(handlers []retention.Handler, ids map[string]int64) []RetentionHandler {
	return List(handlers, func(h *retention.Handler) RetentionHandler {
		return RetentionHandler{h.Name, int64(h.Age.Seconds()), Moment(h.Before), ids[h.Name], refusalsOf(h.Refusals)}
	})
}

// RetentionDone says what retention has deleted.
type RetentionDone struct {
	IDs       int64    `json:"ids"`
	OutboxIDs int64    `json:"outbox_ids" doc:"Those of what was sent out of the outbox, with their idempotency keys."`
	InboxDays int      `json:"inbox_days"`
	Bytes     int64    `json:"inbox_bytes"`
	Rows      int64    `json:"inbox_rows" doc:"Those that were in no day's table."`
	Busy      int      `json:"inbox_days_in_use" doc:"For the next run."`
	Answers   int      `json:"answers" doc:"Those to HTTP requests whose time was over."`
	Refused   []string `json:"refused" doc:"Why IDs are kept all the same."`
}

// RetentionDoneOf adds the reasons for which other IDs are kept.
func RetentionDoneOf(d *retention.Done, refused []retention.Refusal) RetentionDone {
	return RetentionDone{d.IDs, d.OutboxIDs, d.Dropped.Days, d.Dropped.Bytes, d.Dropped.Rows, d.Dropped.Busy, d.Answers,
		refusalsOf(refused)}
}

func refusalsOf(list []retention.Refusal) []string {
	return List(list, func(r *retention.Refusal) string { return r.Text })
}
