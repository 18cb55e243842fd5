package consumer

import (
	"log/slog"
	"slices"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/crashguard"
)

// worker takes one partition through its generation: it acquires the position, then processes batch after
// batch. It alone uses the position.
type worker struct {
	session   *session
	partition *fetch.Partition
	position  *dedup.Position // nil: not acquired yet
	log       *slog.Logger
	telemetry *batches

	messages []dedup.Message // taken and decoded, not yet processed
	next     int64           // the offset after them
	size     int             // their keys, values and headers, and what values were decoded to
	unread   fetch.Taken     // taken behind them, and not decoded yet
	unready  error           // why the first of those could not be decoded when it was tried last
	decoded  int             // what values were decoded to, as the account of memory has it
	limit    int             // messages a batch; lowered where batches take too long

	guard   *crashguard.Guard // nil: nothing has failed, and batches go straight to the Processor
	yielded bool              // nothing is fetched for it while it waits
	parked  dedup.ParkedCount
}

func newWorker(s *session, p *fetch.Partition) *worker {
	return &worker{session: s, partition: p, log: s.log.With("partition", p.String()),
		limit: min(s.c.cfg.MaxBatch, crashguard.FirstBatch), telemetry: s.c.telemetry.batches(p.TopicPartition),
		parked: dedup.ParkedCount{Store: s.c.processor.Store(), Topic: p.Topic, Partition: p.Partition,
			Most: s.c.cfg.MaxParked, N: 1}} // owners before may have left as many as there may be
}

func (w *worker) run() {
	defer w.excuse()
	defer func() { w.counts(-w.decoded) }()
	if !w.start() {
		return
	}
	retry := wait.NewBackoff()
	for w.ready() {
		if w.fill(); w.unready != nil && len(w.messages) == 0 {
			w.session.c.slots.Give()
			w.waitForFormat()
			continue
		}
		n, next := w.cut()
		err := w.attempt(n, next)
		w.session.c.slots.Give()
		switch {
		case err == nil:
			w.drop(n, next)
			w.limit = w.guard.Grow(w.limit, w.session.c.cfg.MaxBatch)
			retry = wait.NewBackoff()
		case !w.recover(err, n, retry):
			return
		}
	}
}

// ready waits until there is something to process, a slot to do it in, and nothing that keeps it from being done. It
// returns false where the session ends.
func (w *worker) ready() bool {
	slots := w.session.c.slots
	for w.await() && slots.Take(w.session.ctx) {
		waitOut := w.obstacle()
		if waitOut == nil {
			return true
		}
		slots.Give()
		waitOut()
	}
	return false
}

// idleLooks is the number of MetadataIntervals without a message after which a partition's position is looked at.
const idleLooks = 6

// await waits until there is something to process. Where nothing comes for long, that is an empty batch: it fails
// where Postgres was set back, or another owner has the position, which no message would bring to light.
func (w *worker) await() bool {
	look := time.NewTimer(idleLooks * w.session.c.cfg.MetadataInterval)
	defer look.Stop()
	for w.session.ctx.Err() == nil {
		if len(w.messages) > 0 || len(w.unread.Records) > 0 || w.partition.Beyond(w.next) {
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

// fill takes and decodes more messages, up to a batch's limits, or to one that can't be decoded now. It is called with
// a slot in hand: while the database is busy, batches grow by themselves.
func (w *worker) fill() {
	cfg := &w.session.c.cfg
	for len(w.messages) < w.limit {
		if len(w.unread.Records) == 0 {
			w.unread = w.partition.Take(w.limit-len(w.messages), cfg.MaxBatchBytes-w.size)
			w.telemetry.taken(len(w.unread.Records))
		}
		none := len(w.unread.Records) == 0
		w.unready = w.decode(cfg.MaxBatchBytes)
		if none || w.unready != nil || len(w.unread.Records) > 0 {
			return
		}
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

// decode turns the records that were taken into messages, and looks for their IDs. It stops where the values that were
// decoded are more than a batch holds.
func (w *worker) decode(maxBytes int) error {
	records := w.unread.Records
	w.messages = slices.Grow(w.messages, len(records))
	for i, r := range records {
		m, err := w.partition.Message(w.session.ctx, r)
		if err != nil || m.Decoded != nil && len(w.messages) > 0 && w.size+m.Size() > maxBytes {
			w.unread.Records = records[i:]
			return err
		}
		w.messages = append(w.messages, m)
		w.size += m.Size()
		w.counts(len(m.JSON()))
		w.next = r.Offset + 1
	}
	w.next, w.unread = max(w.next, w.unread.Next), fetch.Taken{}
	return nil
}

// counts has what values were decoded to on the account of memory, beside the records themselves.
func (w *worker) counts(n int) {
	w.decoded += n
	w.session.c.memory.Add(n)
}

// attempt processes the first n messages once. It outlives the session's end by the drain's limit.
func (w *worker) attempt(n int, next int64) error {
	began := time.Now()
	ctx, span := w.telemetry.begin(w.session.work, w.messages[:n])
	process := w.session.c.processor.Process
	if w.guard != nil {
		process = w.guard.Process
	}
	result, err := process(ctx, handlers.Batch{Position: w.position, Next: next,
		LeaderEpoch: w.partition.EpochAt(next), Messages: w.messages[:n]})
	w.telemetry.end(span, began, n, err)
	if err != nil {
		return err
	}
	w.parked.Add(result.Parked)
	if result.Conflicts > 0 {
		w.log.Warn("messages came under IDs that were seen with another content; the first ones stand", "conflicts",
			result.Conflicts)
	}
	if result.Buried > 0 {
		w.log.Warn("copies of dead letters came; redrive the dead letters to have them handled", "copies",
			result.Buried)
	}
	return nil
}

// cut limits the next batch to n of the messages taken; next is the offset after it.
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
	decoded := 0
	for i := range w.messages[:n] {
		w.size -= w.messages[i].Size()
		decoded += len(w.messages[i].JSON())
	}
	w.counts(-decoded)
	s.c.memory.Give(w.partition.Done(next))
	if w.messages = w.messages[n:]; len(w.messages) == 0 {
		w.messages = nil // a handler that was left behind may still read it
	}
	w.tellProgress()
}
