package dedup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// PauseKind is what is paused.
type PauseKind string

// What can be paused.
const (
	// PauseTopic: no message of the topic is processed, neither new ones nor those in its lanes.
	PauseTopic PauseKind = "topic"
	// PausePartition: the same for one partition of a topic.
	PausePartition PauseKind = "partition"
	// PauseHandler: what is new to the handler is parked, and its lanes rest. The topic's other handlers go on.
	PauseHandler PauseKind = "handler"
)

// Pause is something that an operator has paused. It holds for all processes that consume into the inbox, until it is
// resumed.
type Pause struct {
	Kind      PauseKind
	Topic     string // of PauseTopic and PausePartition
	Partition int32  // of PausePartition
	Handler   string // of PauseHandler

	// When, by whom and why; set by Pauses.
	At         time.Time
	Actor, Why string
}

// String is what is paused: "topic orders", "partition orders/3", "handler book".
func (p Pause) String() string { return string(p.Kind) + " " + p.Name() }

// Name is that of the topic or the handler, and a partition's is topic/partition.
func (p Pause) Name() string {
	switch p.Kind {
	case PauseHandler:
		return p.Handler
	case PausePartition:
		return p.Topic + "/" + strconv.Itoa(int(p.Partition))
	}
	return p.Topic
}

// PauseOf is the Pause of a kind that has a name as Pause.Name gives it. It only returns an error for a kind that is
// none, an empty name, and a partition that is not TOPIC/N.
func PauseOf(kind PauseKind, name string) (Pause, error) {
	p := Pause{Kind: kind}
	switch kind {
	case PauseTopic:
		p.Topic = name
	case PauseHandler:
		p.Handler = name
	case PausePartition:
		at := strings.LastIndexByte(name, '/')
		n, err := strconv.ParseInt(name[at+1:], 10, 32)
		if at < 0 || err != nil || n < 0 {
			return p, fmt.Errorf("partition %q: write TOPIC/N, like orders/3", name)
		}
		p.Topic, p.Partition = name[:at], int32(n)
	}
	return p, p.validate()
}

func (p Pause) validate() error {
	name := p.Topic
	switch p.Kind {
	case PauseTopic, PausePartition:
	case PauseHandler:
		name = p.Handler
	default:
		return fmt.Errorf("kind %q is none of topic, partition, handler", p.Kind)
	}
	switch {
	case isBlank(name):
		return fmt.Errorf("%s: a name is required", p.Kind)
	case p.Kind == PausePartition && p.Partition < 0:
		return fmt.Errorf("partition %d: from 0 on", p.Partition)
	}
	return nil
}

// columns are the pause's own in the table.
func (p Pause) columns() (kind, name string, partition int32) {
	switch p.Kind {
	case PauseHandler:
		return string(p.Kind), p.Handler, -1
	case PausePartition:
		return string(p.Kind), p.Topic, p.Partition
	}
	return string(p.Kind), p.Topic, -1
}

// Pause pauses something, and says whether it was not paused before; if it was, what is known of the first one stands.
// Whether there is a thing of that name is not looked at. Processes obey within handlers.Config.PausePoll; a batch that
// is open is finished.
func (s *Store) Pause(ctx context.Context, p Pause, by By) (bool, error) {
	return s.changePause(ctx, `select firstseen.pause($1, $2, $3, $4, $5, $6)`, "pause", p, by)
}

// Resume ends a pause, and says whether there was one.
func (s *Store) Resume(ctx context.Context, p Pause, by By) (bool, error) {
	return s.changePause(ctx, `select firstseen.resume($1, $2, $3, $4, $5, $6)`, "resume", p, by)
}

func (s *Store) changePause(ctx context.Context, sql, verb string, p Pause, by By) (changed bool, err error) {
	kind, name, partition := p.columns()
	if err = errors.Join(p.validate(), by.validate()); err == nil {
		err = s.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, s.db.SQL(sql), s.cfg.Inbox, kind, name, partition, by.Actor, by.Why).Scan(&changed)
		})
	}
	if err != nil {
		return false, fmt.Errorf("%s %s in inbox %s: %w", verb, p, s.cfg.Inbox, err)
	}
	return changed, nil
}

const pausesSQL = `
select kind, case when kind <> 'handler' then name else '' end, greatest("partition", 0),
       case when kind = 'handler' then name else '' end, at, actor, why
from firstseen.pauses where inbox = $1
order by kind, name, "partition"`

// Pauses lists what is paused in the inbox.
func (s *Store) Pauses(ctx context.Context) ([]Pause, error) {
	pauses, err := db.Collect(ctx, s.db, pgx.RowToStructByPos[Pause], pausesSQL, s.cfg.Inbox)
	if err != nil {
		return nil, fmt.Errorf("pauses of inbox %s: %w", s.cfg.Inbox, err)
	}
	return pauses, nil
}

// pausableSQL goes by positions for topics: which inbox a consumer's are for is not kept.
const pausableSQL = `
select distinct handler from firstseen.scopes where $2 = 'handler' and inbox = $1
union all
select distinct topic from firstseen.positions where $2 = 'topic'
union all
select distinct topic || '/' || "partition" from firstseen.positions where $2 = 'partition'
order by 1`

// Pausable lists the names of a kind that have been seen: handlers of the inbox, and topics and partitions that any
// consumer has a position in. Others can be paused too, before they are there.
func (s *Store) Pausable(ctx context.Context, kind PauseKind) ([]string, error) {
	names, err := db.Collect(ctx, s.db, pgx.RowTo[string], pausableSQL, s.cfg.Inbox, string(kind))
	if err != nil {
		return nil, fmt.Errorf("names of kind %s in inbox %s: %w", kind, s.cfg.Inbox, err)
	}
	return names, nil
}
