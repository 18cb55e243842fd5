package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

// The bounds of replays beside the consumer: one is planned and one is at work at a time, each within its part of the
// memory for messages.
const (
	replayBytes   = 16 << 20
	replayPart    = 4                // of the memory for messages: the most is one of so many
	planLimit     = 15 * time.Second // for the cluster to answer, and memory
	countLimit    = 5 * time.Second
	countMessages = 50_000 // whose IDs are remembered, some MiB
)

// ErrNoReplays says that the process reads no topic, so that it can read none again.
var ErrNoReplays = errors.New("this process reads no topic: a replay is for one that does, firstseen run or a program with a consumer")

// ReplayFault says what is wrong with a replay that is asked for.
type ReplayFault struct {
	Field string // of operate.ReplayAsk, as the API has it; empty: it is what the topic has against it
	Err   error
}

func (f *ReplayFault) Error() string { return strings.TrimPrefix(f.Field+": ", ": ") + f.Err.Error() }
func (f *ReplayFault) Unwrap() error { return f.Err }

// ReplayPlan tells what a replay would come to.
type ReplayPlan struct {
	// Ask is what was asked for, with durations made times.
	Ask operate.ReplayAsk
	// Result has the offsets, and what would become of the messages that were counted.
	replay.Result
	// Counted says that these are all.
	Counted bool
	// Forgets says that IDs are not kept for ever: what is new may have been handled before.
	Forgets bool
}

// PlanReplay tells what a replay would come to, and changes nothing. It counts for some seconds, and no more messages
// than it may remember. What is wrong with what is asked for is a *ReplayFault.
func (s *Service) PlanReplay(ctx context.Context, ask operate.ReplayAsk) (plan ReplayPlan, err error) {
	atOnce := func(context.Context) bool { return s.plans.Try() }
	err = s.lookAtTopic(ctx, &ask, atOnce, func(ctx context.Context, r *replay.Reader, cfg replay.Config) error {
		plan.Ask, plan.Forgets = ask, s.forgets()
		if plan.Result, err = r.Plan(ctx, s.parts.Load().Processor, cfg); err != nil {
			return err
		}
		return s.countReplay(ctx, r, cfg, &plan)
	})
	return plan, err
}

// forgets says that IDs are forgotten.
func (s *Service) forgets() bool {
	r := s.Settings().Retention
	return r.IDs > 0 || len(r.Handlers) > 0
}

// countReplay reads what would be read, for a while.
func (s *Service) countReplay(ctx context.Context, r *replay.Reader, cfg replay.Config, plan *ReplayPlan) error {
	counting, enough := context.WithTimeout(ctx, countLimit)
	defer enough()
	cfg.Progress = func(at replay.Result) {
		if at.Read >= countMessages {
			enough()
		}
	}
	found, err := r.Preview(counting, s.parts.Load().Processor, cfg)
	switch {
	case err == nil:
		plan.Counted = true
	case counting.Err() == nil || ctx.Err() != nil:
		return err
	case found.Ranges == nil: // it was over before it began
		return nil
	}
	plan.Result = found
	return nil
}

// CreateReplay has a process of the group, this one perhaps, read a part of a topic again, and says whether the job is
// new: see operate.Inbox.CreateReplay. What is wrong with what is asked for is a *ReplayFault.
func (s *Service) CreateReplay(ctx context.Context, id uuid.UUID, ask operate.ReplayAsk, by operate.By) (j *operate.Job,
	created bool, err error) {
	n := operate.NewReplay{ID: id, Group: s.cfg.Group}
	if j, err = s.Inbox().Job(ctx, id); err != nil {
		return nil, false, err
	}
	if j == nil {
		n.Offsets, err = s.countOffsets(ctx, &ask)
	} else { // whatever the topic is by now
		_, err = s.replayOf(&ask)
	}
	if err != nil {
		return nil, false, err
	}
	n.ReplayAsk = ask
	return s.Inbox().CreateReplay(ctx, n, by)
}

// countOffsets finds out what a replay would read. It takes its turn behind plans.
func (s *Service) countOffsets(ctx context.Context, ask *operate.ReplayAsk) (n int64, err error) {
	err = s.lookAtTopic(ctx, ask, s.plans.Take, func(ctx context.Context, r *replay.Reader, cfg replay.Config) error {
		found, err := r.Plan(ctx, s.parts.Load().Processor, cfg)
		n = found.Total()
		return err
	})
	return n, err
}

// lookAtTopic checks what is asked for, makes its times fixed, and has do read the topic, when it is its turn.
func (s *Service) lookAtTopic(ctx context.Context, ask *operate.ReplayAsk, turn func(context.Context) bool,
	do func(context.Context, *replay.Reader, replay.Config) error) error {
	cfg, err := s.replayOf(ask)
	if err != nil {
		return err
	}
	cfg.Name = uuid.NewString() // of none that was begun
	looking, cancel := context.WithTimeout(ctx, planLimit)
	defer cancel()
	if !turn(looking) {
		return busy("another replay is being planned; try again")
	}
	defer s.plans.Give()
	bytes, giveBack, err := s.borrow(looking, replayBytes, replayPart, nil)
	if err != nil {
		return busy("all memory for messages is in use, and none is left to read by; try again")
	}
	defer giveBack()
	reader, err := s.replayReader(ask, bytes)
	if err != nil {
		return err
	}
	defer reader.Close()
	err = do(looking, reader, cfg)
	switch {
	case err == nil, ctx.Err() != nil, failure.Code(err) != "", failure.Passes(err):
		return err
	case looking.Err() != nil:
		return busy(fmt.Sprintf("Kafka did not answer within %s: health says why it is not reached", planLimit))
	}
	return &ReplayFault{Err: err}
}

func busy(text string) error {
	return httpjson.Errorf(http.StatusServiceUnavailable, "%s", text).Retry(countLimit)
}

// replayReader reads beside the consumer, as it does, but with less at once.
func (s *Service) replayReader(ask *operate.ReplayAsk, bytes int) (*replay.Reader, error) {
	p := s.parts.Load()
	c := &p.Consumer
	loss := consumer.Fail
	if ask.SkipLost {
		loss = consumer.Continue
	}
	return replay.NewReader(replay.ReaderConfig{Connection: c.Connection, OnLoss: loss, MaxBatch: c.MaxBatch,
		MaxBatchBytes: min(c.MaxBatchBytes, bytes/4), Concurrency: 1, BufferBytes: bytes,
		FetchWait: c.FetchWait, FetchBytes: min(c.FetchBytes, bytes/2), MetadataInterval: c.MetadataInterval,
		Logger: s.log})
}

// replayOf is the replay that is asked for, whose times are made fixed, or a *ReplayFault.
func (s *Service) replayOf(ask *operate.ReplayAsk) (cfg replay.Config, err error) {
	p := s.parts.Load()
	if p == nil || p.Processor == nil {
		return cfg, ErrNoReplays
	}
	topic, is := p.Consumer.Topic(ask.Topic)
	names := p.Processor.Handlers(ask.Topic)
	now := time.Now()
	if cfg.From, err = replay.ParsePlace(ask.From, now); err != nil {
		return cfg, &ReplayFault{"from", err}
	}
	if cfg.To, err = replay.ParsePlace(ask.To, now); err != nil {
		return cfg, &ReplayFault{"to", err}
	}
	ask.From, ask.To = cfg.From.Fixed().String(), cfg.To.Fixed().String()
	switch {
	case !is || len(names) == 0:
		return cfg, &ReplayFault{"topic", fmt.Errorf("%s is none that this process reads", ask.Topic)}
	case ask.Handler != "" && !slices.Contains(names, ask.Handler):
		return cfg, &ReplayFault{"handler", fmt.Errorf("the topic has no handler %s; it has: %s", ask.Handler,
			strings.Join(names, ", "))}
	}
	cfg.Topic, cfg.Group, cfg.Handler, cfg.Partitions, cfg.Rate = topic, s.cfg.Group, ask.Handler, ask.Partitions, ask.Rate
	cfg.Home, cfg.MaxParked = p.Consumer.Home, p.Consumer.MaxParked
	cfg.Transactions, cfg.Holds = p.Transactions, p.Processor.Holds()
	return cfg, nil
}
