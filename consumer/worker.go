package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/crashguard"
	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wait"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// worker takes one partition through its generation: it acquires the position, then processes batch after
// batch. It alone uses the position.
type worker struct {
	session   *session
	partition *fetch.Partition
	position  *dedup.Position
	log       *slog.Logger
	telemetry *batches

	messages []dedup.Message // taken and decoded, not yet processed
	next     int64           // the offset after them
	size     int             // their keys, values and headers
	limit    int             // messages a batch; lowered where batches take too long
	yielded  bool            // nothing is fetched for it while it waits

	guard       *crashguard.Guard // nil: the position was not acquired
	parked      int               // messages at most, as counted last and parked since by this worker
	parkedSince time.Time         // when the parked messages have to be counted next; zero: none were parked
}

func newWorker(s *session, p *fetch.Partition) *worker {
	return &worker{session: s, partition: p, log: s.log.With("partition", p.String()), limit: s.c.cfg.MaxBatch,
		telemetry:   s.c.telemetry.batches(p.TopicPartition),
		parkedSince: time.Unix(0, 0)} // count first: owners before may have left as many as there may be
}

func (w *worker) run() {
	defer w.leave()
	if !w.start() {
		return
	}
	retry := wait.NewBackoff()
	for w.await() && w.hasRoom() && w.admitted() {
		w.fill()
		n, next := w.cut()
		err := w.attempt(n, next)
		w.session.c.slots.Give()
		switch {
		case err == nil:
			w.drop(n, next)
			w.grow()
			retry = wait.NewBackoff()
		case !w.recover(err, n, retry):
			return
		}
	}
}

// start acquires the position and sets where reading begins. It goes on trying until it is done, and returns
// false where the session ends or the partition is held.
func (w *worker) start() bool {
	s, p := w.session, w.partition
	for retry := wait.NewBackoff(); s.ctx.Err() == nil; {
		s.c.cfg.Observe(StageAcquiring)
		at, hold, err := w.acquire(s.ctx)
		switch {
		case err == nil && hold != nil:
			s.hold(p, hold)
			return false
		case err == nil:
			s.offsets.processed(p.TopicPartition, at)
			w.tellProgress()
			p.ReadFrom(at.Offset, at.Epoch)
			return true
		case s.ctx.Err() == nil:
			p.WaitFor(err)
			retry.Wait(s.ctx)
		}
	}
	return false
}

func (w *worker) acquire(ctx context.Context) (at wire.Reading, hold, err error) {
	s, p := w.session, w.partition
	store, cfg := s.c.processor.Store(), &s.c.cfg
	if w.position, err = store.Acquire(ctx, cfg.Group, p.Topic, p.Partition, s.c.owner); err != nil {
		return at, nil, err
	}
	w.guard = crashguard.New(s.c.processor, w.position, w.log)
	if w.position.Evicted > 0 {
		w.log.Warn("ended transactions that an earlier owner had left open", "transactions", w.position.Evicted)
	}
	committed, hasCommit := s.offsets.committedTo(p.TopicPartition)
	facts := startFacts{
		committed: committed, hasCommit: hasCommit,
		position: wire.Reading{Offset: w.position.Next, Epoch: w.position.LeaderEpoch}, hasPosition: w.position.Known,
		positionID: w.position.TopicID, topicID: p.TopicID,
		onReset: cfg.OnReset, onPostgresBehind: cfg.OnPostgresBehind,
	}
	begin := facts.decide()
	if begin.hold != nil {
		return at, begin.hold, nil
	}
	if at, hold, err = w.resolve(ctx, begin); err != nil || hold != nil {
		return at, hold, err
	}
	if begin.warn != "" {
		w.log.Warn(begin.warn, "offset", at.Offset)
	}
	w.next = at.Offset
	if at.Offset == begin.offset && at.Offset < w.position.Next {
		w.guard.HandledTo(w.position.Next)
	}
	w.guard.Begin(at.Offset, cfg.MaxBatch)
	return at, nil, store.Reposition(ctx, w.position, at.Offset, p.TopicID, at.Epoch)
}

// resolve finds out whether the log still is the one that was read, and where reading begins.
func (w *worker) resolve(ctx context.Context, begin start) (at wire.Reading, hold, err error) {
	p := w.partition
	found, named, err := w.session.c.wire.Parted(ctx, p.TopicPartition, p.TopicID, begin.read)
	if err != nil {
		return at, nil, holding.Kafka(err)
	}
	p.NameEpochs(named)
	if found != nil && (p.TopicID == uuid.Nil || p.TopicID != w.position.TopicID) {
		found.Exact = false // it may have been made anew, and have nothing in common with what was read
	}
	switch {
	case found == nil && begin.read.Offset == begin.offset:
		at.Epoch = begin.read.Epoch
	case found != nil && (!found.Exact || found.At < begin.offset):
		return w.cutOff(ctx, begin, found)
	case found != nil:
		w.log.Warn("the log was cut off below the position, and is read again from before", "position", begin.read.Offset,
			"parts_at", found.At, "offset", begin.offset)
	}
	at.Offset, hold, err = w.within(ctx, begin.offset)
	if at.Offset != begin.offset {
		at.Epoch = nil
	}
	return at, hold, err
}

// cutOff decides by policy what to do where the log is not the one that was read. Reading on from where the logs part skips
// nothing, and what was seen is a duplicate. Where that place is not known exactly it is the first message.
func (w *worker) cutOff(ctx context.Context, begin start, found *wire.Parting) (at wire.Reading, hold, err error) {
	earliest, err := w.offsetAt(ctx, wire.EarliestOffset)
	if err != nil {
		return at, nil, err
	}
	parts := "at"
	if at = (wire.Reading{Offset: found.At, Epoch: begin.read.Epoch}); !found.Exact {
		parts = "at or below"
	}
	if !found.Exact || found.At < earliest {
		at = wire.Reading{Offset: earliest}
	}
	reason := fmt.Errorf("the log is not the one that was read up to %d, under the leader epoch %d: they part %s %d, and what follows "+
		"are other messages, or none (an unclean leader election, or a topic made anew)", begin.read.Offset, *begin.read.Epoch, parts, found.At)
	if !w.restarts() {
		return at, w.cutOffHold(reason), nil
	}
	w.session.offsets.takeBack(w.partition.TopicPartition)
	w.log.Error("reading again from where the logs part", "offset", at.Offset, "reason", reason)
	return at, nil, nil
}

// within turns earliest into an offset, and finds out whether the partition ends below the offset:
// then it was cut off, or made anew on a broker that has no topic IDs.
func (w *worker) within(ctx context.Context, offset int64) (next int64, hold, err error) {
	earliest, err := w.offsetAt(ctx, wire.EarliestOffset)
	if err != nil {
		return 0, nil, err
	}
	latest, err := w.offsetAt(ctx, wire.LatestOffset)
	switch {
	case err != nil:
		return 0, nil, err
	case offset == wire.EarliestOffset:
		return earliest, nil, nil
	case offset <= latest:
		return offset, nil, nil
	}
	switch below, err := w.endsBelow(offset); {
	case err != nil || !below:
		return offset, nil, err
	case w.restarts():
		w.log.Error("the partition ends below the position: starting again from its first message",
			"position", offset, "end", latest, "first", earliest)
		w.session.offsets.takeBack(w.partition.TopicPartition)
		return earliest, nil, nil
	}
	return 0, w.cutOffHold(fmt.Errorf("the partition ends at %d, below the position %d: it was cut off or made anew", latest, offset)), nil
}

// restarts says that a log that was cut off is to be read again, and that this skips nothing.
func (w *worker) restarts() bool {
	return w.session.c.cfg.OnReset == Restart && !w.session.c.topic(w.partition.Topic).Identity.ByPosition()
}

func (w *worker) cutOffHold(reason error) error {
	if w.session.c.cfg.OnReset == Restart {
		reason = fmt.Errorf("%w; it is not read again in spite of on_reset: messages are known by their positions, which others have now", reason)
	}
	return holding.As(HeldCutOff, reason)
}

// endsBelow asks with a fetch whether an offset beyond the last stable one is beyond the end too: a group that was
// taken over may stand within an open transaction.
func (w *worker) endsBelow(offset int64) (bool, error) {
	_, err := w.session.fetching.Peek(w.partition, offset)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return true, nil
	}
	return false, holding.Kafka(err)
}

func (w *worker) offsetAt(ctx context.Context, timestamp int64) (int64, error) {
	tp := w.partition.TopicPartition
	found, err := w.session.c.wire.ListOffsets(ctx, []wire.TopicPartition{tp}, timestamp)
	return found[tp], holding.Kafka(err)
}

// idleLooks is after how many MetadataIntervals without a message a partition's position is looked at.
const idleLooks = 6

// await waits until there is something to process. Where nothing comes for long, that is an empty batch: it fails
// where Postgres was set back, or another owner has the position, which no message would bring to light.
func (w *worker) await() bool {
	look := time.NewTimer(idleLooks * w.session.c.cfg.MetadataInterval)
	defer look.Stop()
	for w.session.ctx.Err() == nil {
		if len(w.messages) > 0 || w.partition.Beyond(w.next) {
			return true
		}
		select {
		case <-w.session.ctx.Done():
		case <-w.partition.Data.C:
		case <-look.C:
			return true
		}
	}
	return false
}

// fill takes and decodes more messages, up to a batch's limits. It is called with a slot in hand: while the
// database is busy, batches grow by themselves.
func (w *worker) fill() {
	cfg := &w.session.c.cfg
	for len(w.messages) < w.limit {
		t := w.partition.Take(w.limit-len(w.messages), cfg.MaxBatchBytes-w.size)
		w.next = max(w.next, t.Next)
		if len(t.Records) == 0 {
			return
		}
		w.decode(t.Records)
		w.telemetry.taken(len(t.Records))
	}
}

// tellProgress tells the partition that the worker goes on, and which message is the first that it has.
func (w *worker) tellProgress() {
	var front time.Time
	if len(w.messages) > 0 {
		front = w.messages[0].Timestamp
	}
	w.partition.Progress(front)
}

// decode turns records into messages, and looks for their IDs.
func (w *worker) decode(records []*wire.Record) {
	w.messages = slices.Grow(w.messages, len(records))
	for _, r := range records {
		w.messages = append(w.messages, w.partition.Message(r))
		w.size += r.Size()
	}
}

// attempt processes the first n messages once. It outlives the session's end by the drain's limit.
func (w *worker) attempt(n int, next int64) error {
	began := time.Now()
	ctx, span := w.telemetry.begin(w.session.work, w.messages[:n])
	result, err := w.guard.Process(ctx, handlers.Batch{Position: w.position, Next: next,
		LeaderEpoch: w.partition.EpochAt(next), Messages: w.messages[:n]})
	w.telemetry.end(span, began, n, err)
	if err != nil {
		return err
	}
	if w.parked += result.Parked; result.Parked > 0 && w.parkedSince.IsZero() {
		w.parkedSince = time.Now()
	}
	if result.Conflicts > 0 {
		w.log.Warn("messages came under IDs that were seen with another content; the first ones stand", "conflicts", result.Conflicts)
	}
	if result.Buried > 0 {
		w.log.Warn("copies of dead letters came; redrive the dead letters to have them handled", "copies", result.Buried)
	}
	return nil
}

// cut is how much of what was taken goes into the next batch, and the offset after it.
func (w *worker) cut() (n int, next int64) {
	if len(w.messages) <= w.limit {
		return len(w.messages), w.next
	}
	return w.limit, w.messages[w.limit-1].Offset + 1
}

// drop forgets the first n messages, which are done, and reports how far the partition is done.
func (w *worker) drop(n int, next int64) {
	s := w.session
	s.offsets.processed(w.partition.TopicPartition, wire.Reading{Offset: next, Epoch: w.partition.EpochAt(next)})
	for i := range w.messages[:n] {
		w.size -= w.messages[i].Size()
	}
	s.c.memory.Give(w.partition.Done(next))
	if w.messages = w.messages[n:]; len(w.messages) == 0 {
		w.messages = nil // a handler that was left behind may still read it
	}
	w.tellProgress()
}

// recover decides what a failed attempt means, and says whether the partition goes on. Whatever it is, nothing of
// the batch has taken effect, but where the position says otherwise.
func (w *worker) recover(err error, n int, retry wait.Backoff) bool {
	s := w.session
	var moved *dedup.MovedError
	switch {
	case errors.As(err, &moved) && moved.Next > w.position.Next && moved.Next <= w.next:
		w.log.Warn("the answer to a commit was lost; it had taken effect", "offset", moved.Next)
		w.telemetry.failed(failedCommitLost)
		done, _ := slices.BinarySearchFunc(w.messages, moved.Next, func(m dedup.Message, next int64) int {
			return cmp.Compare(m.Offset, next)
		})
		w.position.Next, w.position.LeaderEpoch = moved.Next, w.partition.EpochAt(moved.Next)
		w.drop(done, moved.Next)
		return true
	case errors.Is(err, dedup.ErrFenced), moved != nil:
		w.telemetry.ousted(moved)
		s.fault(fmt.Errorf("partition %s: %w", w.partition, err))
		return false
	case s.ctx.Err() != nil:
		w.telemetry.failed(failedAbandoned)
		w.log.Warn("open batch abandoned; its messages come again", "error", err)
		return false
	}
	w.telemetry.failed(holding.CodeOf(err))
	w.limit = w.guard.Failed(s.ctx, err, n, w.limit)
	pause := retry.Next()
	w.partition.WaitFor(err, "offset", w.position.Next, "messages", n)
	w.yield()
	defer w.resume()
	return wait.Sleep(s.ctx, pause)
}

// yield gives up all that the worker has where others lack memory: a partition that is held must not keep them from going
// on. It is read again after resume.
func (w *worker) yield() {
	if !w.yielded && w.session.c.memory.Short() {
		w.rest()
		w.yielded = true
	}
}

func (w *worker) resume() {
	if w.yielded {
		w.partition.Resume(w.next)
		w.yielded = false
	}
}

// rest gives up all that is fetched and not processed.
func (w *worker) rest() {
	w.session.c.memory.Give(w.partition.Rest())
	w.messages, w.size, w.next = nil, 0, w.position.Next
}
