package view

import (
	"slices"
	"time"

	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// Outbox is how it stands with what is sent, by destination.
type Outbox struct {
	CountedAt    *time.Time    `json:"counted_at" doc:"When the messages were counted in Postgres; null: not yet."`
	Window       *Window       `json:"window" doc:"Of this process; null: none was asked."`
	Destinations []Destination `json:"destinations"`
}

// Destination is one of a relay's, with the messages to its topics.
type Destination struct {
	Destination *string    `json:"destination" doc:"Null: there is none for the topic."`
	Topics      []string   `json:"topics"`
	Pending     int64      `json:"pending" doc:"To be sent, with no attempt that failed."`
	Failed      int64      `json:"failed" doc:"To be sent again, after an attempt that failed."`
	Delayed     int64      `json:"delayed" doc:"Not to be sent before a time."`
	Dead        int64      `json:"dead" doc:"Dead letters."`
	Sent        int64      `json:"sent" doc:"By all relays since the first; those that were discarded are among them."`
	OldestAt    *time.Time `json:"oldest_at" doc:"Since when the oldest one that is to be sent has waited."`
	Capped      bool       `json:"capped" doc:"There are more: of each kind 100001 are counted at most."`
	Held        *string    `json:"held" doc:"Why it, or some of its lanes, wait: a code, as in the page OPERATIONS. Null: none does, as far as is known."`
	HeldSince   *time.Time `json:"held_since"`
	HeldReason  *string    `json:"held_reason" doc:"What the last try failed by."`
	Totals      *Totals    `json:"totals" doc:"What this process has done since its start; null: none was asked."`
}

// OutboxOf gives destinations by their names and topics, and then the topics that none of them has. Of the holds the oldest one of
// a destination is told.
func OutboxOf(destinations []outbox.Destination, topics []operate.OutboxTopic, at time.Time, held []holds.Hold) Outbox {
	out := Outbox{CountedAt: Moment(at), Destinations: []Destination{}}
	for i := range destinations {
		d := Destination{Destination: &destinations[i].Name, Topics: destinations[i].Topics}
		for _, t := range topics {
			if slices.Contains(d.Topics, t.Topic) {
				d.add(t)
			}
		}
		d.hold(held)
		out.Destinations = append(out.Destinations, d)
	}
	for _, t := range topics {
		if !slices.ContainsFunc(destinations, func(d outbox.Destination) bool { return slices.Contains(d.Topics, t.Topic) }) {
			d := Destination{Topics: []string{t.Topic}}
			d.add(t)
			out.Destinations = append(out.Destinations, d)
		}
	}
	return out
}

func (d *Destination) add(t operate.OutboxTopic) {
	d.Pending += t.Pending
	d.Failed += t.Failed
	d.Delayed += t.Delayed
	d.Dead += t.Dead
	d.Sent += t.Sent
	d.Capped = d.Capped || t.Capped
	if oldest := Moment(t.OldestAt); oldest != nil && (d.OldestAt == nil || oldest.Before(*d.OldestAt)) {
		d.OldestAt = oldest
	}
}

func (d *Destination) hold(held []holds.Hold) {
	for i := range held {
		h := &held[i]
		if h.Kind == holds.HandlerKind && h.Name == *d.Destination && (d.HeldSince == nil || h.Since.Before(*d.HeldSince)) {
			d.Held, d.HeldSince, d.HeldReason = &h.Code, Moment(h.Since), &h.Reason
		}
	}
}

// In adds what a process has done.
func (o Outbox) In(totals func(destination string) handlers.Totals, rates handlers.Rates) Outbox {
	window := WindowOf(rates)
	o.Window = &window
	for i := range o.Destinations {
		if d := &o.Destinations[i]; d.Destination != nil {
			done := TotalsOf(totals(*d.Destination))
			d.Totals = &done
		}
	}
	return o
}
