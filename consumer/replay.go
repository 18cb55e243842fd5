package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/crashguard"
	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// Replay says which part of a topic is to be read again. Topic and Group are required.
type Replay struct {
	// Topic is what is read, as in Config.Topics. Required.
	Topic Topic
	// Group is the consumer group whose messages they are. Required. The replay neither joins it nor moves its offsets,
	// and reads nothing that lies beyond its position in Postgres: that is the group's to read, in its order.
	Group string
	// Name tells replays of a topic apart; one that was interrupted goes on under its name. Default: the topic's.
	Name string
	// From is where to begin. Default: the first message that is left.
	From Place
	// To is where to end: what is there is not read. Default: the end, as it is when the replay begins.
	To Place
	// Partitions are those to read. Default: all.
	Partitions []int32
	// Rate caps the messages a second. Default: no limit.
	Rate int
	// Fresh begins anew where there is a replay of that name already.
	Fresh bool
	// MaxParked is how many of a partition's messages may be parked before the replay waits. Default that of Config.
	MaxParked int
	// Progress, if set, is told after each batch how far the replay is. It is called by one goroutine at a time.
	Progress func(ReplayResult)
}

// ReplayResult is what a replay did, and how far it is.
type ReplayResult struct {
	Name, Topic string
	// Resumed says that the replay had begun before, at BegunAt.
	Resumed bool
	BegunAt time.Time
	// Before is how many offsets were done before this run.
	Before int64
	// Ranges are how far each partition is, sorted.
	Ranges []operate.ReplayRange
	// Read is how many messages this run has read. Offsets without one, such as transaction markers, do not count.
	Read int64
	// Result is what became of them, each once for every handler.
	handlers.Result
	// Elapsed is how long this run has taken.
	Elapsed time.Duration
	// Guessed is for PreviewReplay: more IDs were new than it could remember, so that New may be too high.
	Guessed bool
}

// Left is how many offsets are not done yet.
func (r *ReplayResult) Left() int64 { return (&operate.Replay{Ranges: r.Ranges}).Left() }

// Total is how many offsets the whole replay has.
func (r *ReplayResult) Total() (n int64) {
	for _, p := range r.Ranges {
		n += p.To - p.From
	}
	return n
}

// ErrReplayTaken says that another process has begun to work on the replay.
var ErrReplayTaken = errors.New("another process has taken the replay over, or it was begun anew")

// Replay reads a part of a topic again, beside the group that consumes it, and takes each message through the same
// transaction that its consumer would: what was seen is a duplicate, what was not is handled once, what its handler fails
// on is parked and tried again by whatever process runs the handler's lanes. The replay itself runs none, and so makes no
// calls of detached handlers. That a handler is paused does not concern it, which is how a new handler is filled.
//
// How far it is is kept in Postgres with each batch: a replay that was interrupted, by whatever, goes on there when it is
// called again with the same Name, From, To, Partitions and handlers, and ends where it was to end at first. Called after
// its end it does nothing. The last one called has the replay; another one that still runs ends with ErrReplayTaken.
//
// Outages of Kafka and Postgres are waited for, which is logged, until ctx ends. Then open batches are finished, and the
// error is ctx's. Messages that were deleted before they were read are an error, or skipped: see ReaderConfig.OnLoss. The
// result is also given beside an error.
func (r *Reader) Replay(ctx context.Context, p *handlers.Processor, cfg Replay) (ReplayResult, error) {
	started := time.Now()
	state, resumed, err := r.beginReplay(ctx, p, &cfg)
	if err != nil {
		return ReplayResult{}, fmt.Errorf("replay topic %s: %w", cfg.Topic.Name, err)
	}
	run := newReplayRun(ctx, r, p, cfg, state, resumed, started)
	defer run.abandon()
	defer run.leave()
	run.tell()
	telling, told := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() {
		holding.Tell(telling, holding.Teller{Registry: r.holds, Store: p.Store(), Consumer: state.Consumer, Log: run.log})
	})
	defer teller.Wait()
	defer told()
	if err = run.acquire(ctx); err == nil {
		err = run.read(ctx)
	}
	if err != nil {
		err = fmt.Errorf("replay topic %s: %w", cfg.Topic.Name, err)
	}
	return run.result(), err
}

// replayRun is one call of Replay.
type replayRun struct {
	cfg       *Replay
	reader    *Reader
	processor *handlers.Processor
	log       *slog.Logger
	rate      rate
	started   time.Time
	work      context.Context // of open batches; ends some time after the call's
	abandon   context.CancelFunc
	parts     map[int32]*replayPart // those that are not done

	mu    sync.Mutex
	state *operate.Replay
	sofar ReplayResult
}

// replayDrain is how long open batches may go on after the end of a replay's context.
const replayDrain = 15 * time.Second

func newReplayRun(ctx context.Context, r *Reader, p *handlers.Processor, cfg Replay, state *operate.Replay, resumed bool, started time.Time) *replayRun {
	run := &replayRun{
		cfg: &cfg, reader: r, processor: p, log: r.cfg.Logger.With("replay", cfg.Name, "topic", cfg.Topic.Name), started: started,
		rate: rate{perSecond: cfg.Rate}, parts: map[int32]*replayPart{}, state: state,
		sofar: ReplayResult{Name: cfg.Name, Topic: cfg.Topic.Name, Resumed: resumed, BegunAt: state.BegunAt},
	}
	run.sofar.Before = run.sofar.total(state) - state.Left()
	run.work, run.abandon = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(replayDrain, run.abandon)
		context.AfterFunc(run.work, func() { timer.Stop() })
	})
	return run
}

func (r *ReplayResult) total(state *operate.Replay) int64 {
	r.Ranges = state.Ranges
	return r.Total()
}

// tell logs what there is to do.
func (run *replayRun) tell() {
	message := "replay begins"
	switch {
	case run.sofar.Resumed && run.state.Left() == 0:
		message = "replay was finished before"
	case run.sofar.Resumed:
		message = "replay is resumed"
	}
	run.log.Info(message, "begun_at", run.state.BegunAt, "asked", run.state.Asked, "offsets_done", run.sofar.Before, "offsets_left", run.state.Left())
}

// acquire becomes the owner of all positions that are not done.
func (run *replayRun) acquire(ctx context.Context) error {
	for i := range run.state.Ranges {
		at := &run.state.Ranges[i]
		if at.Left() == 0 {
			continue
		}
		position, err := run.processor.Store().Acquire(ctx, run.state.Consumer, run.state.Topic, at.Partition, holding.Owner())
		if err != nil {
			return err
		}
		at.Next = position.Next
		log := run.log.With("partition", at.Partition)
		part := &replayPart{replayRun: run, position: position, at: at, log: log, limit: run.reader.cfg.MaxBatch,
			guard: crashguard.New(run.processor, position, log),
			hold:  run.reader.holds.Place(holds.ReplayKind, fmt.Sprintf("%s of %s/%d", run.cfg.Name, run.state.Topic, at.Partition))}
		part.guard.Begin(position.Next, part.limit)
		run.parts[at.Partition] = part
	}
	return nil
}

// read reads what is left.
func (run *replayRun) read(ctx context.Context) error {
	if err := run.reader.Read(ctx, run.cfg.Topic, left(run.state), func(ctx context.Context, page Page) error {
		return run.parts[page.Partition].process(ctx, page.Messages, page.Next)
	}); err != nil {
		return err
	}
	for _, at := range run.state.Ranges {
		if at.Left() > 0 {
			return fmt.Errorf("partition %d ends before %d now, where the replay is to end: it was cut off or made anew; "+
				"begin the replay anew", at.Partition, at.To)
		}
	}
	return nil
}

// left are the ranges that are not done.
func left(r *operate.Replay) (ranges []Range) {
	for _, at := range r.Ranges {
		if at.Left() > 0 {
			ranges = append(ranges, Range{Partition: at.Partition, From: at.Next, To: at.To})
		}
	}
	return ranges
}

func (run *replayRun) leave() {
	for _, part := range run.parts {
		part.guard.Leave(run.work)
		part.hold.Leave()
	}
}

// done takes in what became of a batch, and tells of it.
func (run *replayRun) done(at *operate.ReplayRange, next int64, read int, r handlers.Result) {
	run.mu.Lock()
	defer run.mu.Unlock()
	at.Next = next
	run.sofar.add(read, r)
	if run.cfg.Progress != nil {
		run.cfg.Progress(run.snapshot())
	}
}

func (r *ReplayResult) add(read int, more handlers.Result) {
	r.Read += int64(read)
	r.New += more.New
	r.Duplicates += more.Duplicates
	r.Parked += more.Parked
	r.Dead += more.Dead
	r.Conflicts += more.Conflicts
	r.Buried += more.Buried
}

func (run *replayRun) result() ReplayResult {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.snapshot()
}

func (run *replayRun) snapshot() ReplayResult {
	now := run.sofar
	now.Ranges = append([]operate.ReplayRange(nil), run.state.Ranges...)
	now.Elapsed = time.Since(run.started)
	return now
}

// asked is how a replay was asked for.
func (c *Replay) asked(p *handlers.Processor) string {
	partitions := "all partitions"
	if c.Partitions != nil {
		partitions = "partitions " + strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Partitions), " ", ","), "[]")
	}
	return fmt.Sprintf("from %s to %s, %s, handlers %s", c.From, c.To, partitions, strings.Join(p.Handlers(c.Topic.Name), ","))
}
