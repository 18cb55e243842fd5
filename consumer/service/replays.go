package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/wait"
)

// replayTold is the time between two words to Postgres of how far a replay is.
const replayTold = time.Second

// replays works on the replays that operators have asked for, one at a time, beside the consumer.
type replays struct {
	*Service
	parts  *attached
	others []uuid.UUID // replays that this process can't do
}

// run works until ctx ends, where the process reads topics.
func (r *replays) run(ctx context.Context) {
	if r.parts.Processor != nil {
		r.again(ctx, "replays", r.once)
	}
}

// once takes a replay that this process can do, if there is one, and takes it to its end.
func (r *replays) once(ctx context.Context) error {
	taken, err := r.parts.Inbox.TakeReplay(ctx, r.cfg.Group, r.cfg.Actor, r.may)
	if err != nil || taken == nil {
		return err
	}
	w := &replayWork{replays: r, job: taken}
	return w.run(ctx)
}

// may says whether this process can do a replay. Why it can't is logged once.
func (r *replays) may(j *operate.Job) bool {
	_, err := r.replayOf(&j.Replay.ReplayAsk)
	if err != nil && !slices.Contains(r.others, j.ID) {
		r.log.Info("a replay is for another process of the group", "job", j.ID, "because", err)
		r.others = append(r.others[max(0, len(r.others)-mostOthers):], j.ID)
	}
	return err == nil
}

// mostOthers caps the replays that are remembered to be for others.
const mostOthers = 1000

// replayWork is one process' work on one replay.
type replayWork struct {
	*replays
	job *operate.TakenReplay

	mu   sync.Mutex
	last replay.Result
}

// errNotOurs ends work on a replay that was paused or cancelled, or that another process has.
var errNotOurs = errors.New("the replay is to go on no more here")

// run takes the replay as far as it goes, and lets go of it.
func (w *replayWork) run(parent context.Context) error {
	ctx, stop := context.WithCancelCause(parent)
	var keeping sync.WaitGroup
	keeping.Go(func() { w.keep(ctx, stop) })
	result, err := w.read(ctx)
	ended := context.Cause(ctx) // before this ends it
	stop(nil)
	keeping.Wait()
	if result.Ranges != nil {
		w.progress(result)
	}
	news := w.news()
	news.Over, news.Finished = true, err == nil
	switch {
	case ended != nil || errors.Is(err, replay.ErrTaken): // it is looked at anew who has it
		err = nil
	case err != nil && !errors.Is(err, errNoMemory) && !failure.Passes(err):
		news.Fault = clip(faultOf(err))
		w.log.Error("a replay stops until it is resumed: see the jobs", "job", w.job.ID, "error", err)
		err = nil
	}
	telling, cancel := context.WithTimeout(context.WithoutCancel(parent), replayTold*5)
	defer cancel()
	_, untold := w.job.Tell(telling, news)
	return errors.Join(err, untold)
}

// read reads the topic again.
func (w *replayWork) read(ctx context.Context) (replay.Result, error) {
	ask := &w.job.Replay.ReplayAsk
	cfg, err := w.replayOf(ask)
	if err != nil {
		return replay.Result{}, err
	}
	cfg.Name, cfg.Progress = w.job.ID.String(), w.progress
	bytes, giveBack, err := w.takeMemory(ctx)
	if err != nil {
		return replay.Result{}, err
	}
	defer giveBack()
	reader, err := w.replayReader(ask, bytes)
	if err != nil {
		return replay.Result{}, err
	}
	defer reader.Close()
	return reader.Replay(ctx, w.parts.Processor, cfg)
}

// errNoMemory lets go of a replay, which another process may have room for.
var errNoMemory = errors.New("all memory for messages is in use")

// memoryPatience bounds the wait for it: what waits behind a replay's share needs less.
const memoryPatience = 10 * time.Second

// takeMemory waits for its turn where the consumer has all of it.
func (w *replayWork) takeMemory(ctx context.Context) (bytes int, giveBack func(), err error) {
	hold := w.parts.Processor.Holds().Place(holds.ReplayKind, w.job.ID.String())
	defer hold.Leave()
	waiting, cancel := context.WithTimeout(ctx, memoryPatience)
	defer cancel()
	bytes, giveBack, err = w.borrow(waiting, replayBytes, replayPart, func() { hold.Wait(holds.Memory, errNoMemory) })
	if err != nil {
		return 0, nil, cmp.Or(context.Cause(ctx), errNoMemory)
	}
	hold.End()
	return bytes, giveBack, nil
}

// keep tells Postgres how far the replay is, so that no other process takes it, until ctx ends, or it is not ours.
func (w *replayWork) keep(ctx context.Context, stop context.CancelCauseFunc) {
	for wait.Sleep(ctx, replayTold) {
		goOn, err := w.job.Tell(ctx, w.news())
		switch {
		case err != nil: // it is told again; who has waited for too long is fenced by whoever took it
			w.log.Debug("how far a replay is is not told", "job", w.job.ID, "error", err)
		case !goOn:
			stop(errNotOurs)
			return
		}
	}
}

func (w *replayWork) progress(at replay.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = at
}

// news is what there is to tell.
func (w *replayWork) news() operate.ReplayNews {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := &w.last
	if at.Ranges == nil { // nothing is done yet
		return operate.ReplayNews{Done: w.job.Done, Total: int64(w.job.Expected)}
	}
	return operate.ReplayNews{Done: at.Total() - at.Left(), Total: at.Total(), Counts: countsOf(at)}
}

func countsOf(r *replay.Result) operate.ReplayCounts {
	return operate.ReplayCounts{New: int64(r.New), Duplicates: int64(r.Duplicates), Conflicts: int64(r.Conflicts),
		Parked: int64(r.Parked), Dead: int64(r.Dead), Buried: int64(r.Buried)}
}

// faultOf says why a replay rests, and what a job can do about it.
func faultOf(err error) string {
	if other, ok := errors.AsType[*replay.DiffersError](err); ok {
		return fmt.Sprintf("it was begun %s, and this process has other handlers of the topic, or another config (%s): have the "+
			"processes of the group run alike and resume it, or cancel it and plan another one", other.Asked, other.Now)
	}
	return err.Error()
}

// maxFault bounds the text by which a replay rests.
const maxFault = 2000

// clip makes a text fit for a text column.
func clip(text string) string {
	text = text[:min(maxFault, len(text))]
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}
