package dedup

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// PauseKind is the kind of thing that is paused.
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

// String names it with its kind: "topic orders", "partition orders/3", "handler book".
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
	return p, p.Validate()
}

// Validate says what is wrong with it.
func (p Pause) Validate() error {
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

const pausesSQL = `
select kind, case when kind <> 'handler' then name else '' end, greatest("partition", 0),
       case when kind = 'handler' then name else '' end, at, actor, why
from firstseen.pauses where inbox = $1
order by kind, name, "partition"`

// Pauses lists what is paused in the inbox.
func (s *Store) Pauses(ctx context.Context) (pauses []Pause, err error) {
	err = s.Answered(ctx, 0, func(ctx context.Context) (err error) {
		pauses, err = db.Collect(ctx, s.db, pgx.RowToStructByPos[Pause], pausesSQL, s.cfg.Inbox)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pauses of inbox %s: %w", s.cfg.Inbox, err)
	}
	return pauses, nil
}
