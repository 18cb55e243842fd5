package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// ReplayAsk says what a job is to read again. Places are those of package consumer/replay, in words that mean the same
// whenever they are read: no durations before now.
type ReplayAsk struct {
	// Topic is required.
	Topic string
	// Handler is the only one to be given messages. Default: all of the topic.
	Handler string
	// From and To are required. To is resolved when the replay begins.
	From, To string
	// Partitions are those to read. Default: all.
	Partitions []int32
	// Rate caps the messages a second. Default: no limit.
	Rate int
	// SkipLost goes on where messages are not in Kafka any more. Default: the replay stops there.
	SkipLost bool
}

// ReplayCounts are what became of a replay's messages, each once for every handler.
type ReplayCounts struct {
	New, Duplicates, Conflicts, Parked, Dead, Buried int64
}

// Plus are the counts of both.
func (c ReplayCounts) Plus(o ReplayCounts) ReplayCounts {
	return ReplayCounts{c.New + o.New, c.Duplicates + o.Duplicates, c.Conflicts + o.Conflicts, c.Parked + o.Parked,
		c.Dead + o.Dead, c.Buried + o.Buried}
}

// ReplayJob is what a job has that is a replay.
type ReplayJob struct {
	ReplayAsk
	// Consumer names its positions: ReplayConsumer, with the job's ID as the name.
	Consumer string
	// Counts are those that its processes have told: what one that was killed did in its last second is not in them,
	// and is done all the same.
	Counts ReplayCounts
}

// NewReplay says what a job is to read again, and for whom.
type NewReplay struct {
	// ID is the caller's choice: who asks twice with one ID has asked once. Required.
	ID uuid.UUID
	// Group is the consumer group whose messages they are. Required.
	Group string
	ReplayAsk
	// Offsets are how many it is expected to come to.
	Offsets int64
}

func (n *NewReplay) validate() error {
	var faults []error
	if n.ID == uuid.Nil {
		faults = append(faults, errNoJobID)
	}
	for _, text := range [][2]string{{"group", n.Group}, {"topic", n.Topic}, {"from", n.From}, {"to", n.To}} {
		if text[1] == "" {
			faults = append(faults, fmt.Errorf("%s: is required", text[0]))
		}
	}
	return errors.Join(faults...)
}

// same goes by all but times, as that of NewJob.
func (n *NewReplay) same(inbox string, j *Job) bool {
	a, b := &n.ReplayAsk, j.Replay
	return b != nil && inbox == j.Inbox && a.Topic == b.Topic && a.Handler == b.Handler && samePlace(a.From, b.From) &&
		samePlace(a.To, b.To) && a.Rate == b.Rate && a.SkipLost == b.SkipLost && slices.Equal(a.Partitions, b.Partitions) && ReplayConsumer(n.Group, n.ID.String()) == b.Consumer
}

// samePlace goes by all but times, which may have been said as durations before now.
func samePlace(a, b string) bool {
	_, notA := time.Parse(time.RFC3339Nano, a)
	_, notB := time.Parse(time.RFC3339Nano, b)
	return a == b || notA == nil && notB == nil
}

const createReplaySQL = `select firstseen.create_replay($1::text::uuid, $2, $3, $4, nullif($5, ''), $6, $7, $8, nullif($9::int, 0), $10,
	$11, $12, $13)`

// CreateReplay has a part of a topic read again by a process of the group that runs TakeReplay, and says whether the job
// is new: where there is one of that ID it stands, and the error is a *JobDiffersError where that is another one. It
// takes the rights of firstseen_operator; who works on it needs none.
func (in *Inbox) CreateReplay(ctx context.Context, n NewReplay, by By) (j *Job, created bool, err error) {
	if err = errors.Join(n.validate(), by.validate()); err == nil {
		j, created, err = in.makeJob(ctx, n.ID, func() (created bool, err error) {
			err = in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				return tx.QueryRow(ctx, in.db.SQL(createReplaySQL), n.ID.String(), in.db.Inbox,
					ReplayConsumer(n.Group, n.ID.String()), n.Topic, n.Handler, n.From, n.To, n.Partitions, n.Rate, n.SkipLost,
					n.Offsets, by.Actor, by.Why).Scan(&created)
			})
			return created, err
		}, n.same)
	}
	if err != nil {
		return nil, false, fmt.Errorf("create replay in inbox %s: %w", in.db.Inbox, err)
	}
	return j, created, nil
}

// ReplayKept is how long a process has a replay that it has taken, or has told of last. Then another one may take it.
const ReplayKept = 15 * time.Second

// TakenReplay is a replay that this process has.
type TakenReplay struct {
	Job
	inbox *Inbox
	taken int
}

const openReplaysSQL = jobsSQL + `
where m.kind = 'replay' and m.finished_at is null and m.state <> 'paused' and m.inbox = $1
	and r.consumer = $2 || m.job_id and (r.taken_until is null or r.taken_until < clock_timestamp())
order by m.created_at, m.job_id
limit 1000`

// TakeReplay gives the first replay of a group that nobody is at and that may says yes to, for ReplayKept; nil: there is
// none. worker names the process. The rights of firstseen_consumer are enough.
func (in *Inbox) TakeReplay(ctx context.Context, group, worker string, may func(*Job) bool) (*TakenReplay, error) {
	open, err := db.LookAll(ctx, in.db, nil, scanJob, openReplaysSQL, in.db.Inbox, ReplayConsumer(group, ""))
	if err != nil {
		return nil, fmt.Errorf("look for replays: %w", err)
	}
	for i := range open {
		j := &open[i]
		if !may(j) {
			continue
		}
		var taken *int
		err := in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, in.db.SQL(`select firstseen.take_replay($1::text::uuid, $2, $3)`), j.ID.String(), worker,
				int(ReplayKept.Seconds())).Scan(&taken)
		})
		if err != nil {
			return nil, fmt.Errorf("take replay %s: %w", j.ID, db.RightsError(err))
		}
		if taken == nil {
			continue
		}
		if j, err = in.Job(ctx, j.ID); err != nil || j == nil { // as whoever had it last has left it
			return nil, err
		}
		return &TakenReplay{Job: *j, inbox: in, taken: *taken}, nil
	}
	return nil, nil
}

// ReplayNews is what a process tells of a replay that it has.
type ReplayNews struct {
	// Done are the offsets that are done, and Total those of the whole replay.
	Done, Total int64
	// Counts is what became of messages since this process has it.
	Counts ReplayCounts
	// Over says that this process lets go of it: it is Finished or, with Fault, stops until it is resumed. With neither
	// another process may take it at once.
	Over, Finished bool
	Fault          string
}

const tellReplaySQL = `select firstseen.tell_replay($1::text::uuid, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, nullif($13, ''))`

// Tell keeps the replay for ReplayKept more, or lets go of it; told twice it is told once. It says whether to go on: not
// where the job was paused or cancelled, or another process has it.
func (t *TakenReplay) Tell(ctx context.Context, n ReplayNews) (goOn bool, err error) {
	var kept *int
	if !n.Over {
		seconds := int(ReplayKept.Seconds())
		kept = &seconds
	}
	c := t.Replay.Counts.Plus(n.Counts)
	err = t.inbox.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, t.inbox.db.SQL(tellReplaySQL), t.ID.String(), t.taken, kept, n.Done, n.Total, c.New, c.Duplicates,
			c.Conflicts, c.Parked, c.Dead, c.Buried, n.Finished, n.Fault).Scan(&goOn)
	})
	if err != nil {
		return false, fmt.Errorf("tell of replay %s: %w", t.ID, db.RightsError(err))
	}
	return goOn, nil
}
