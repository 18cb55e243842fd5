package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/shards"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/crashguard"
)

// Config says which part of a topic a replay is to read. Topic and Group are required.
type Config struct {
	// Topic is read, as in consumer.Config.Topics. Required.
	Topic consumer.Topic
	// Group is the consumer group whose messages they are. Required. The replay neither joins it nor moves its
	// offsets, and reads nothing that lies beyond its position in Postgres: that is the group's to read, in its
	// order.
	Group string
	// Handler is the only one that is given messages. Default: all of the topic.
	Handler string
	// Name tells replays of a topic apart; one that was interrupted goes on under its name. Default: the topic's.
	Name string
	// From is the first place to read. Default: the first message that is left.
	From Place
	// To ends the replay: what is there is not read. Default: the end, as it is when the replay begins.
	To Place
	// Partitions are those to read. Default: all.
	Partitions []int32
	// Home is the shard that the processor's store is, as in consumer.Config: what is at home elsewhere is left out, also
	// of Partitions. Default: all is at home.
	Home shards.Home
	// Rate caps the messages a second. Default: no limit.
	Rate int
	// Fresh begins anew where there is a replay of that name already.
	Fresh bool
	// Transactions, if set, bounds those of the replay together with those of all others who share it.
	Transactions wait.Slots
	// Holds has what keeps batches of the replay from going on. Default: the registry in which the Reader tells what it
	// waits for itself.
	Holds *holds.Registry
	// MaxParked caps a partition's parked messages: beyond it the replay waits. Default 100,000.
	MaxParked int
	// Progress, if set, is told after each batch how far the replay is. It is called by one goroutine at a time.
	Progress func(Result)
}

// Result tells what a replay did, and how far it is.
type Result struct {
	Name, Topic string
	// Resumed says that the replay had begun before, at BegunAt.
	Resumed bool
	BegunAt time.Time
	// Before counts the offsets that were done before this run.
	Before int64
	// Ranges tell how far each partition is, sorted.
	Ranges []operate.ReplayRange
	// Read counts the messages that this run has read. Offsets without one, such as transaction markers, do not count.
	Read int64
	// Result counts what became of them, each once for every handler.
	handlers.Result
	// Elapsed is this run's time.
	Elapsed time.Duration
	// Guessed is for Preview: more IDs were new than it could remember, so that New may be too high.
	Guessed bool
}

// Left counts the offsets that are not done yet.
func (r *Result) Left() int64 { return (&operate.Replay{Ranges: r.Ranges}).Left() }

// Total counts the offsets of the whole replay.
func (r *Result) Total() (n int64) {
	for _, p := range r.Ranges {
		n += p.To - p.From
	}
	return n
}

// ErrTaken says that another process has begun to work on the replay.
var ErrTaken = errors.New("another process has taken the replay over, or it was begun anew")

// Replay reads a part of a topic again, beside the group that consumes it, and takes each message through the same
// transaction that its consumer would: what was seen is a duplicate, what was not is handled once, what its handler
// fails on is parked and tried again by whatever process runs the handler's lanes. The replay itself runs none, and
// so makes no calls of detached handlers. That a handler is paused does not concern it, which is how a new handler
// is filled.
//
// How far it is is kept in Postgres with each batch: a replay that was interrupted, by whatever, goes on there when
// it is called again with the same Name, From, To, Partitions and handlers, and ends where it was to end at first.
// Called after its end it does nothing. The last one called has the replay; another one that still runs ends with
// ErrTaken.
//
// Outages of Kafka and Postgres are waited for, which is logged, until ctx ends. Then open batches are finished, and
// the error is ctx's. Messages that were deleted before they were read are an error, or skipped: see
// ReaderConfig.OnLoss. The result is also given beside an error.
func (r *Reader) Replay(ctx context.Context, p *handlers.Processor, cfg Config) (Result, error) {
	started := time.Now()
	state, resumed, err := r.beginReplay(ctx, p, &cfg)
	if err != nil {
		return Result{}, fmt.Errorf("replay topic %s: %w", cfg.Topic.Name, err)
	}
	j := newJob(ctx, r, p, cfg, state, resumed, started)
	defer j.abandon()
	defer j.leave()
	j.tell()
	telling, told := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() { p.Store().KeepHoldsTold(telling, state.Consumer, r.holds, j.log) })
	defer teller.Wait()
	defer told()
	if err = j.acquire(ctx); err == nil {
		err = j.read(ctx)
	}
	if err != nil {
		err = fmt.Errorf("replay topic %s: %w", cfg.Topic.Name, err)
	}
	return j.result(), err
}

// job is one call of Replay.
type job struct {
	cfg       *Config
	reader    *Reader
	processor *handlers.Processor
	log       *slog.Logger
	rate      rate
	started   time.Time
	work      context.Context // of open batches; ends some time after the call's
	abandon   context.CancelFunc
	parts     map[int32]*part // those that are not done

	mu    sync.Mutex
	state *operate.Replay
	sofar Result
}

// drain bounds the time of open batches after the end of a replay's context.
const drain = 15 * time.Second

func newJob(ctx context.Context, r *Reader, p *handlers.Processor, cfg Config, state *operate.Replay, resumed bool,
	started time.Time) *job {
	j := &job{
		cfg: &cfg, reader: r, processor: p, state: state, started: started,
		log:  r.cfg.Logger.With("replay", cfg.Name, "topic", cfg.Topic.Name),
		rate: rate{perSecond: cfg.Rate}, parts: map[int32]*part{},
		sofar: Result{Name: cfg.Name, Topic: cfg.Topic.Name, Resumed: resumed, BegunAt: state.BegunAt},
	}
	j.sofar.Ranges = state.Ranges
	j.sofar.Before = j.sofar.Total() - state.Left()
	j.work, j.abandon = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(drain, j.abandon)
		context.AfterFunc(j.work, func() { timer.Stop() })
	})
	return j
}

// tell logs what there is to do.
func (j *job) tell() {
	message := "replay begins"
	switch {
	case j.sofar.Resumed && j.state.Left() == 0:
		message = "replay was finished before"
	case j.sofar.Resumed:
		message = "replay is resumed"
	}
	j.log.Info(message, "begun_at", j.state.BegunAt, "asked", j.state.Asked, "offsets_done", j.sofar.Before,
		"offsets_left", j.state.Left())
}

// acquire becomes the owner of all positions that are not done.
func (j *job) acquire(ctx context.Context) error {
	for i := range j.state.Ranges {
		at := &j.state.Ranges[i]
		if at.Left() == 0 {
			continue
		}
		position, err := j.processor.Store().Acquire(ctx, j.state.Consumer, j.state.Topic, at.Partition,
			dedup.ThisProcess())
		if err != nil {
			return err
		}
		at.Next = position.Next
		log := j.log.With("partition", at.Partition)
		part := &part{job: j, position: position, at: at, log: log, limit: min(j.reader.cfg.MaxBatch, crashguard.FirstBatch),
			parked: dedup.ParkedCount{Store: j.processor.Store(), Topic: j.state.Topic, Partition: at.Partition,
				Most: j.cfg.MaxParked},
			hold: cmp.Or(j.cfg.Holds, j.reader.holds).Place(holds.ReplayKind,
				fmt.Sprintf("%s of %s/%d", j.cfg.Name, j.state.Topic, at.Partition))}
		part.guard = cmp.Or(
			crashguard.AfterAcquiring(j.processor, position, position.Next, position.Next, part.limit, log),
			crashguard.AfterFailure(j.processor, position, log))
		j.parts[at.Partition] = part
	}
	return nil
}

// read reads what is left.
func (j *job) read(ctx context.Context) error {
	if err := j.reader.Read(ctx, j.cfg.Topic, left(j.state), func(ctx context.Context, page Page) error {
		return j.parts[page.Partition].process(ctx, page.Messages, page.Next)
	}); err != nil {
		return err
	}
	for _, at := range j.state.Ranges {
		if at.Left() > 0 {
			return fmt.Errorf("partition %d ends before %d now, where the replay is to end: it was cut off or made "+
				"anew; begin the replay anew", at.Partition, at.To)
		}
	}
	return nil
}

func left(r *operate.Replay) (ranges []Range) {
	for _, at := range r.Ranges {
		if at.Left() > 0 {
			ranges = append(ranges, Range{Partition: at.Partition, From: at.Next, To: at.To})
		}
	}
	return ranges
}

func (j *job) leave() {
	for _, part := range j.parts {
		crashguard.Excuse(j.work, j.processor.Store(), part.position, part.log)
		part.hold.Leave()
	}
}

// done takes in what became of a batch, and tells of it.
func (j *job) done(at *operate.ReplayRange, next int64, read int, r handlers.Result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at.Next = next
	j.sofar.add(read, r)
	if j.cfg.Progress != nil {
		j.cfg.Progress(j.snapshot())
	}
}

func (r *Result) add(read int, more handlers.Result) {
	r.Read += int64(read)
	r.New += more.New
	r.Duplicates += more.Duplicates
	r.Parked += more.Parked
	r.Dead += more.Dead
	r.Conflicts += more.Conflicts
	r.Buried += more.Buried
}

func (j *job) result() Result {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.snapshot()
}

func (j *job) snapshot() Result {
	now := j.sofar
	now.Ranges = append([]operate.ReplayRange(nil), j.state.Ranges...)
	now.Elapsed = time.Since(j.started)
	return now
}

func (c *Config) asked(p *handlers.Processor) string {
	partitions := "all partitions"
	if c.Partitions != nil {
		partitions = "partitions " + strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Partitions), " ", ","), "[]")
	}
	return fmt.Sprintf("from %s to %s, %s", c.From, c.To, partitions) + askedHandlers + strings.Join(c.handlers(p), ",")
}

// askedHandlers is what stands before the handlers' names in what was asked for.
const askedHandlers = ", handlers "

// handlers are the names of those that are given messages; none: the topic has none, or not that one.
func (c *Config) handlers(p *handlers.Processor) []string {
	all := p.Handlers(c.Topic.Name)
	if c.Handler != "" {
		all = slices.DeleteFunc(all, func(name string) bool { return name != c.Handler })
	}
	return all
}
