package view

import (
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
)

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

// BacklogOf is what waits, by handler.
func BacklogOf(list []operate.Backlog) Backlog { return Backlog{List(list, handlerBacklogOf)} }

func handlerBacklogOf(b *operate.Backlog) HandlerBacklog {
	return HandlerBacklog{b.Handler, b.Pending, b.Failed, b.Dead, b.Lanes, Moment(b.OldestAt), b.Capped}
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
	Inbox  string  `json:"inbox"`
	Pauses []Pause `json:"pauses"`
}

// PausesOf is what is paused in an inbox.
func PausesOf(inbox string, list []dedup.Pause) Pauses { return Pauses{inbox, List(list, pauseOf)} }

func pauseOf(p *dedup.Pause) Pause {
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

// InboxStatus is what Postgres knows of the consumers.
type InboxStatus struct {
	Inbox     string           `json:"inbox"`
	Positions []Position       `json:"positions"`
	Backlog   []HandlerBacklog `json:"backlog"`
	Pauses    []Pause          `json:"pauses"`
	Holds     []ToldHolds      `json:"holds"`
}

// Position is where a consumer stands in a partition.
type Position struct {
	Consumer   string     `json:"consumer"`
	Topic      string     `json:"topic"`
	Partition  int32      `json:"partition"`
	Next       *int64     `json:"next_offset" doc:"To be processed next; null: none yet."`
	Owner      *string    `json:"owner" doc:"The process that acquired it last."`
	AcquiredAt *time.Time `json:"acquired_at"`
	MovedAt    *time.Time `json:"moved_at"`
	Fruitless  int        `json:"fruitless" doc:"How often it was acquired since it moved."`
}

// ToldHolds are the holds of one process, as it told them last.
type ToldHolds struct {
	Consumer string     `json:"consumer"`
	Owner    string     `json:"owner"`
	ToldAt   *time.Time `json:"told_at"`
	Stale    bool       `json:"stale" doc:"It is gone since, or can't reach Postgres."`
	Holds    []Hold     `json:"holds"`
}

// InboxStatusOf is what Postgres knows.
func InboxStatusOf(inbox string, positions []operate.Position, backlog []operate.Backlog, pauses []dedup.Pause,
	told []operate.ToldHolds) InboxStatus {
	return InboxStatus{inbox, List(positions, positionOf), List(backlog, handlerBacklogOf), List(pauses, pauseOf),
		List(told, toldHoldsOf)}
}

func positionOf(p *operate.Position) Position {
	return Position{p.Consumer, p.Topic, p.Partition, p.NextOrNil(), OrNull(p.Owner), Moment(p.AcquiredAt),
		Moment(p.MovedAt), p.Fruitless}
}

func toldHoldsOf(t *operate.ToldHolds) ToldHolds {
	return ToldHolds{t.Consumer, t.Owner, Moment(t.ToldAt), t.Stale, List(t.Holds, HoldOf)}
}
