package view

import (
	"time"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Backlog counts unfinished messages in Postgres, by handler.
type Backlog struct {
	Handlers []HandlerBacklog `json:"handlers"`
}

// HandlerBacklog counts one handler's unfinished messages.
type HandlerBacklog struct {
	Handler  string     `json:"handler"`
	Pending  int64      `json:"pending" doc:"Parked, with no attempt that failed."`
	Failed   int64      `json:"failed" doc:"Parked, for an attempt after one that failed."`
	Dead     int64      `json:"dead" doc:"Dead letters."`
	Lanes    int64      `json:"lanes" doc:"Queues of what is parked."`
	OldestAt *time.Time `json:"oldest_at" doc:"Since when the oldest parked message has waited."`
	Capped   bool       `json:"capped" doc:"There are more: of each kind 100001 are counted at most."`
}

func BacklogOf(list []operate.Backlog) Backlog { return Backlog{List(list, handlerBacklogOf)} }

func handlerBacklogOf(b *operate.Backlog) HandlerBacklog {
	return HandlerBacklog{b.Handler, b.Pending, b.Failed, b.Dead, b.Lanes, Moment(b.OldestAt), b.Capped}
}

// OutboxBacklog counts the outbox's waiting messages, by topic.
type OutboxBacklog struct {
	Topics []TopicBacklog `json:"topics"`
}

// TopicBacklog counts those to one topic.
type TopicBacklog struct {
	Topic    string     `json:"topic"`
	Pending  int64      `json:"pending" doc:"To be sent, with no attempt that failed."`
	Failed   int64      `json:"failed" doc:"To be sent again, after an attempt that failed."`
	Delayed  int64      `json:"delayed" doc:"Not to be sent before a time."`
	Dead     int64      `json:"dead" doc:"Dead letters."`
	OldestAt *time.Time `json:"oldest_at" doc:"Since when the oldest one that is to be sent has waited."`
	Capped   bool       `json:"capped" doc:"There are more: of each kind 100001 are counted at most."`
}

func OutboxBacklogOf(list []operate.OutboxBacklog) OutboxBacklog {
	return OutboxBacklog{List(list, func(b *operate.OutboxBacklog) TopicBacklog {
		return TopicBacklog{b.Topic, b.Pending, b.Failed, b.Delayed, b.Dead, Moment(b.OldestAt), b.Capped}
	})}
}

// Pause is something that is paused.
type Pause struct {
	Kind  string    `json:"kind" enum:"topic,partition,handler"`
	Name  string    `json:"name" doc:"The topic's or the handler's; a partition's is TOPIC/N."`
	At    time.Time `json:"at"`
	Actor string    `json:"actor"`
	Why   string    `json:"why"`
}

// Pauses lists an inbox's pauses.
type Pauses struct {
	Inbox  string  `json:"inbox"`
	Pauses []Pause `json:"pauses"`
}

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

// InboxStatus is the consumers' status, by Postgres alone.
type InboxStatus struct {
	Inbox     string           `json:"inbox"`
	Positions []Position       `json:"positions"`
	Backlog   []HandlerBacklog `json:"backlog"`
	Pauses    []Pause          `json:"pauses"`
	Holds     []ToldHolds      `json:"holds"`
	Outbox    Outbox           `json:"outbox"`
}

// Position is a consumer's position in a partition.
type Position struct {
	Consumer   string     `json:"consumer"`
	Topic      string     `json:"topic"`
	Partition  int32      `json:"partition"`
	Next       *int64     `json:"next_offset" doc:"To be processed next; null: none yet."`
	Owner      *string    `json:"owner" doc:"The process that acquired it last."`
	AcquiredAt *time.Time `json:"acquired_at"`
	MovedAt    *time.Time `json:"moved_at"`
	Fruitless  int        `json:"fruitless" doc:"How often it was acquired since it moved."`
	ReplayTo   *int64     `json:"replay_to" doc:"Where the replay ends whose position it is; null: it is none's."`
}

// Positions are where all consumers of the schema stand, and what their processes told of what waits, by Postgres alone.
type Positions struct {
	Positions []Position  `json:"positions" doc:"By consumer, topic and partition."`
	More      bool        `json:"more" doc:"There are more than these."`
	Holds     []ToldHolds `json:"holds"`
}

// PositionsOf shows at most so many positions.
func PositionsOf(positions []operate.Position, most int, told []operate.ToldHolds) Positions {
	shown := positions[:min(len(positions), most)]
	return Positions{List(shown, positionOf), len(positions) > most, List(told, toldHoldsOf)}
}

// ToldHolds are the holds of one process, as it told them last.
type ToldHolds struct {
	Consumer string     `json:"consumer"`
	Owner    string     `json:"owner"`
	ToldAt   *time.Time `json:"told_at"`
	Stale    bool       `json:"stale" doc:"It is gone since, or can't reach Postgres."`
	Holds    []Hold     `json:"holds"`
}

func InboxStatusOf(inbox string, positions []operate.Position, backlog []operate.Backlog, pauses []dedup.Pause,
	told []operate.ToldHolds, outbox Outbox) InboxStatus {
	return InboxStatus{inbox, List(positions, positionOf), List(backlog, handlerBacklogOf), List(pauses, pauseOf),
		List(told, toldHoldsOf), outbox}
}

func positionOf(p *operate.Position) Position {
	return Position{p.Consumer, p.Topic, p.Partition, p.NextOrNil(), OrNull(p.Owner), Moment(p.AcquiredAt),
		Moment(p.MovedAt), p.Fruitless, replayTo(p)}
}

func toldHoldsOf(t *operate.ToldHolds) ToldHolds {
	return ToldHolds{t.Consumer, t.Owner, Moment(t.ToldAt), t.Stale, List(t.Holds, HoldOf)}
}

// ErrorGroup are messages that have failed alike.
type ErrorGroup struct {
	Handler   string     `json:"handler"`
	Reason    *string    `json:"reason" doc:"The code of the last failure; null: none has failed yet."`
	Error     *string    `json:"error" doc:"Its text, the first 300 characters, with # for numbers and UUIDs."`
	Count     int        `json:"count" doc:"Dead letters; or lanes, by the message that each waits for."`
	OldestAt  *time.Time `json:"oldest_at" doc:"When the first of them died, or was parked."`
	NewestAt  *time.Time `json:"newest_at"`
	NextTryAt *time.Time `json:"next_try_at" doc:"When the first of the lanes is tried next; null for dead letters."`
	ExampleID string     `json:"example_id" doc:"The newest of them."`
}

// ErrorGroups are groups, the one with the most first.
type ErrorGroups struct {
	Groups []ErrorGroup `json:"groups" doc:"At most 100."`
	More   bool         `json:"more" doc:"There are more than were looked at: the newest 10,000 dead letters, or of each handler the 10,000 lanes that are due first."`
}

// ErrorGroupsOf are groups of a topic's messages, or where that is empty, of any topic's.
func ErrorGroupsOf(found []operate.ErrorGroup, more bool, topic string, rules *mask.Rules) ErrorGroups {
	return ErrorGroups{List(found, func(g *operate.ErrorGroup) ErrorGroup {
		return ErrorGroup{g.Handler, OrNull(g.Reason), OrNull(rules.Error(topic, g.Error)), g.Count, Moment(g.OldestAt), Moment(g.NewestAt),
			Moment(g.NextAt), g.Example.String()}
	}), more}
}

func replayTo(p *operate.Position) *int64 {
	if !p.Replay {
		return nil
	}
	return &p.ReplayTo
}
