package view

import (
	"time"

	"github.com/firstseen/firstseen/cmd/internal/retention"
	"github.com/firstseen/firstseen/dedup/operate"
)

// RetentionPlan is what retention would delete.
type RetentionPlan struct {
	At          time.Time          `json:"at"`
	Handlers    []RetentionHandler `json:"handlers"`
	InboxBefore *time.Time         `json:"inbox_before" doc:"Days of the inbox that ended before go; null: it is kept for ever."`
	InboxDays   []InboxDay         `json:"inbox_days"`
}

// RetentionHandler is what becomes of one handler's message IDs.
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

// RetentionPlanOf is a plan, with how many IDs of each handler it is about.
func RetentionPlanOf(p *retention.Plan, ids map[string]int64) RetentionPlan {
	return RetentionPlan{At: p.At.UTC(), InboxBefore: Moment(p.InboxBefore),
		InboxDays: List(p.Days, func(d *operate.InboxDay) InboxDay { return InboxDay{day(d.Day), d.Bytes} }),
		Handlers: List(p.Handlers, func(h *retention.Handler) RetentionHandler {
			return RetentionHandler{h.Name, int64(h.Age.Seconds()),
				Moment(h.Before), ids[h.Name], refusalsOf(h.Refusals)}
		})}
}

// RetentionDone is what retention has deleted.
type RetentionDone struct {
	IDs       int64    `json:"ids"`
	InboxDays int      `json:"inbox_days"`
	Bytes     int64    `json:"inbox_bytes"`
	Rows      int64    `json:"inbox_rows" doc:"Those that were in no day's table."`
	Busy      int      `json:"inbox_days_in_use" doc:"For the next run."`
	Refused   []string `json:"refused" doc:"Why IDs are kept all the same."`
}

// RetentionDoneOf is what was deleted, and why other IDs are kept.
func RetentionDoneOf(d *retention.Done, refused []retention.Refusal) RetentionDone {
	return RetentionDone{d.IDs, d.Dropped.Days, d.Dropped.Bytes, d.Dropped.Rows, d.Dropped.Busy, refusalsOf(refused)}
}

func refusalsOf(list []retention.Refusal) []string {
	return List(list, func(r *retention.Refusal) string { return r.Text })
}
