package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/fetch"
	"github.com/firstseen/firstseen/consumer/internal/holding"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
)

// session is one generation of the group: the partitions that this member was given, until they are given up.
// run owns every goroutine of it and returns when all have ended.
type session struct {
	c          *Consumer
	generation *kafka.Generation
	topics     map[string]wire.Topic // as they were before the group assigned partitions
	offsets    offsets

	log        *slog.Logger
	partitions map[wire.TopicPartition]*fetch.Partition
	fetching   *fetch.Fetcher

	ctx        context.Context // ends when the partitions must be given up; work, when open batches must end too
	giveUp     context.CancelCauseFunc
	work       context.Context
	abandon    context.CancelFunc
	goroutines sync.WaitGroup
	done       chan struct{} // closed when everything is drained and committed
}

var (
	errGenerationEnded = errors.New("the group is rebalancing")
	errShutdown        = errors.New("shutting down")
)

func newSession(c *Consumer, g *kafka.Generation, topics map[string]wire.Topic) *session {
	s := &session{
		c: c, generation: g, topics: topics, log: c.log.With("generation", g.ID),
		partitions: map[wire.TopicPartition]*fetch.Partition{},
		offsets: offsets{done: map[wire.TopicPartition]wire.Reading{},
			committed: map[wire.TopicPartition]wire.Reading{}},
		done: make(chan struct{}),
	}
	s.ctx, s.giveUp = context.WithCancelCause(context.Background())
	s.work, s.abandon = context.WithCancel(context.Background())
	s.fetching = &fetch.Fetcher{
		Config: c.cfg.fetching(), Wire: c.wire, Memory: c.memory, Holds: c.holds,
		Log: s.log, Telemetry: c.telemetry.fetches,
		Decider: s, Ctx: s.ctx, Partitions: s.partitions,
	}
	return s
}

// cause says why the session ended; nil while it goes on.
func (s *session) cause() error { return context.Cause(s.ctx) }

// run reads and processes until the generation or the consumer ends, or something shows that the group has to
// be joined anew; then it drains. While the consumer shuts down it stays until the group is left, as its return
// would have the member join again.
func (s *session) run(shutdown, generationEnd context.Context) {
	stop := []func() bool{
		context.AfterFunc(generationEnd, func() { s.giveUp(errGenerationEnded) }),
		context.AfterFunc(shutdown, func() { s.giveUp(errShutdown) }),
		context.AfterFunc(s.ctx, s.limitDrain),
	}
	s.consume()
	s.giveUp(errGenerationEnded)
	s.goroutines.Wait()
	s.commit(context.WithoutCancel(s.ctx))
	for _, f := range stop {
		f()
	}
	s.abandon()
	s.drained()
	close(s.done)
	if cause := s.cause(); errors.Is(cause, errShutdown) || errors.Is(cause, errTopicsChanged) {
		<-generationEnd.Done()
	} else if !errors.Is(cause, errGenerationEnded) {
		wait.Sleep(shutdown, s.c.cfg.JoinBackoff) // a fault that recurs must not have the group rebalance without end
	}
}

// limitDrain abandons open batches after DrainTimeout.
func (s *session) limitDrain() {
	s.c.cfg.Observe(StageDraining)
	s.c.life.drains(s)
	timer := time.AfterFunc(s.c.cfg.DrainTimeout, s.abandon)
	context.AfterFunc(s.work, func() { timer.Stop() })
}

// consume starts everything that belongs to the generation and waits for the workers.
func (s *session) consume() {
	if !s.assigned() {
		return
	}
	s.log.Info("partitions assigned", "partitions", len(s.partitions))
	s.c.telemetry.rebalances.Add(s.ctx, 1, s.c.telemetry.ofGroup...)
	s.goroutines.Go(s.watch)
	s.goroutines.Go(s.commitOften)
	s.fetching.StartLoops()
	for _, p := range s.partitions {
		s.goroutines.Go(newWorker(s, p).run)
	}
	<-s.ctx.Done()
}

// assigned sets up the partitions of the generation and looks up their committed offsets, trying until it is
// answered: a failed look-up is never "no commit".
func (s *session) assigned() bool {
	var parts []wire.TopicPartition
	for topic, assignments := range s.generation.Assignments {
		for _, a := range assignments {
			tp := wire.TopicPartition{Topic: topic, Partition: int32(a.ID)}
			parts = append(parts, tp)
			p := fetch.NewPartition(tp, s.topics[topic], s.c.cfg.entry(topic).message())
			p.HeldIn(s.c.holds)
			s.partitions[tp] = p
		}
	}
	s.c.life.assigned(s)
	for retry := wait.NewBackoff(); ; {
		committed, err := s.lookUp(parts)
		if err == nil {
			s.offsets.commit(committed)
			return true
		}
		if s.ctx.Err() != nil {
			return false
		}
		for _, p := range s.partitions {
			p.WaitFor(err)
		}
		retry.Wait(s.ctx)
	}
}

// lookUp finds out how far the group is, in a database that is the one it has to be. Topics that are new to Postgres
// are begun first, all partitions at once.
func (s *session) lookUp(parts []wire.TopicPartition) (committed map[wire.TopicPartition]wire.Reading, err error) {
	if err := s.c.processor.Store().CheckHome(s.ctx, s.c.cfg.Group, s.c.cfg.Home); err != nil {
		return nil, err
	}
	if err := s.c.processor.LookUpPauses(s.ctx); err != nil { // before anything is processed
		return nil, err
	}
	for topic := range s.generation.Assignments {
		if err := s.begin(topic); err != nil {
			return nil, err
		}
	}
	committed, err = s.c.wire.CommittedOffsets(s.ctx, s.c.cfg.Group, parts)
	return committed, holding.Kafka(err)
}

// begin sets the first positions of a topic: where the group stands, if it was another consumer's before, and else
// where the config says. Members that start together do it once, so that none takes a sibling's partitions for ones
// that were added to a topic it knows.
func (s *session) begin(topic string) error {
	store, cfg := s.c.processor.Store(), &s.c.cfg
	known, err := store.KnowsTopic(s.ctx, cfg.Group, topic)
	if err != nil {
		return err
	}
	if known {
		return s.forgetGone(topic)
	}
	var parts []wire.TopicPartition
	for _, p := range s.topics[topic].Partitions {
		if cfg.Home.Has(p.ID) {
			parts = append(parts, wire.TopicPartition{Topic: topic, Partition: p.ID})
		}
	}
	committed, err := s.c.wire.CommittedOffsets(s.ctx, cfg.Group, parts)
	if err != nil {
		return holding.Kafka(err)
	}
	timestamp := int64(wire.EarliestOffset)
	if cfg.StartAt == Latest {
		timestamp = wire.LatestOffset
	}
	first, err := s.c.wire.ListOffsets(s.ctx, parts, timestamp)
	if err != nil {
		return holding.Kafka(err)
	}
	next, epochs := make(map[int32]int64, len(parts)), map[int32]int32{}
	for _, tp := range parts {
		next[tp.Partition] = first[tp]
		if at, ok := committed[tp]; ok {
			next[tp.Partition] = at.Offset
			if at.Epoch != nil {
				epochs[tp.Partition] = *at.Epoch
			}
		}
	}
	begun, err := store.Begin(s.ctx, cfg.Group, topic, s.topics[topic].ID, next, epochs)
	for tp, at := range committed {
		if begun {
			s.log.Warn("Kafka has a committed offset and Postgres nothing: taking over the group where it stands",
				"partition", tp.String(), "offset", at.Offset)
		}
	}
	return err
}

// forgetGone forgets the positions of partitions that a topic, made anew, does not have any more, where that is
// decided to be as it should. Nobody would be given them.
func (s *session) forgetGone(topic string) error {
	now, cfg := s.topics[topic], &s.c.cfg
	if cfg.OnReset != Restart || now.ID == uuid.Nil {
		return nil
	}
	gone, err := s.c.processor.Store().ForgetPartitions(s.ctx, cfg.Group, topic, now.ID, len(now.Partitions))
	if gone > 0 {
		s.log.Warn("the topic was created again with fewer partitions: the positions of the others are forgotten",
			"topic", topic, "positions", gone)
	}
	return err
}

// fault ends the session because of something that only joining the group anew can repair.
func (s *session) fault(err error) {
	level := slog.LevelError
	if errors.Is(err, errTopicsChanged) {
		level = slog.LevelInfo
	}
	if s.ctx.Err() == nil {
		s.log.Log(s.ctx, level, "giving all partitions up to join the group anew", "error", err)
	}
	s.giveUp(err)
}

func (s *session) drained() {
	s.fetching.Finish()
	for _, p := range s.partitions {
		p.Unheld()
	}
	s.c.commits.Leave()
	s.log.Info("partitions given up", "partitions", len(s.partitions), "because", s.cause())
}

// watch looks at the cluster now and then: for leaders that moved, new partitions, topics that came or went, and
// transactions left open.
func (s *session) watch() {
	for wait.Sleep(s.ctx, s.c.cfg.MetadataInterval) {
		s.Refresh()
		s.fetching.Listen()
		for _, p := range s.partitions {
			p.LookForOpenTransaction()
		}
	}
}

// Refresh brings the leaders up to date and ends the session where the assignment can no longer be right.
func (s *session) Refresh() {
	found, err := s.c.ask(s.ctx, s.c.cfg.PatternInterval)
	if err != nil {
		if s.ctx.Err() == nil {
			s.c.cluster.Wait(holds.Kafka, err)
		}
		return
	}
	s.c.cluster.End()
	for name, now := range found {
		before, subscribed := s.topics[name]
		if err := changed(name, before, now, subscribed); err != nil {
			s.fault(err)
			return
		}
	}
	s.fetching.Follow(found)
}

func changed(name string, before, now wire.Topic, subscribed bool) error {
	there := now.Readable()
	switch {
	case !subscribed && there:
		return fmt.Errorf("topic %s is there now: %w", name, errTopicsChanged)
	case !subscribed:
		return nil
	case wire.IsGone(now.Err):
		return fmt.Errorf("topic %s is gone: %w", name, errTopicsChanged)
	case !there:
		return nil
	case now.ID != before.ID:
		return fmt.Errorf("topic %s was deleted and created again", name)
	case len(now.Partitions) != len(before.Partitions):
		return fmt.Errorf("topic %s has %d partitions now, not %d", name, len(now.Partitions), len(before.Partitions))
	}
	return nil
}

// offsets tells how far the session's partitions are processed, and how far that is committed to Kafka.
type offsets struct {
	mu        sync.Mutex
	done      map[wire.TopicPartition]wire.Reading
	committed map[wire.TopicPartition]wire.Reading
}

func (o *offsets) processed(tp wire.TopicPartition, to wire.Reading) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done[tp] = to
}

func (o *offsets) committedTo(tp wire.TopicPartition) (to wire.Reading, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to, ok = o.committed[tp]
	return to, ok
}

// takeBack has the next commit move a partition's offset back: what was committed is of a log that is no more.
func (o *offsets) takeBack(tp wire.TopicPartition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.committed, tp)
}

// of gives how far a partition is processed and committed; -1 where that is not known.
func (o *offsets) of(tp wire.TopicPartition) (done, committed int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return wire.OffsetIn(o.done, tp), wire.OffsetIn(o.committed, tp)
}

// toCommit gives what is processed beyond what is committed: offsets are never moved back, whatever Postgres says.
func (o *offsets) toCommit() map[wire.TopicPartition]wire.Reading {
	o.mu.Lock()
	defer o.mu.Unlock()
	ahead := map[wire.TopicPartition]wire.Reading{}
	for tp, to := range o.done {
		if last, ok := o.committed[tp]; !ok || to.Offset > last.Offset {
			ahead[tp] = to
		}
	}
	return ahead
}

func (o *offsets) commit(to map[wire.TopicPartition]wire.Reading) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.Copy(o.committed, to)
}

func (s *session) commitOften() {
	for wait.Sleep(s.ctx, s.c.cfg.CommitInterval) {
		s.commit(s.ctx)
	}
}

// commit sends the offsets of finished work to Kafka, as the member of the generation that owns the partitions. A
// failure loses nothing: the position in Postgres holds, and a later commit covers this one. It is our own request,
// for kafka-go's has no leader epochs.
func (s *session) commit(ctx context.Context) {
	ahead := s.offsets.toCommit()
	if len(ahead) == 0 {
		return
	}
	g := s.generation
	done, err := s.c.wire.CommitOffsets(ctx,
		wire.GroupCommit{Group: g.GroupID, Generation: g.ID, Member: g.MemberID, Offsets: ahead})
	s.offsets.commit(done) // a topic may be denied, which says nothing of the others
	switch {
	case err == nil:
		s.c.commits.End()
	case errors.Is(err, kerr.RebalanceInProgress):
		s.log.Debug("offsets not committed, the group is rebalancing", "error", err)
	case errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.UnknownMemberID),
		errors.Is(err, kerr.NotCoordinator):
		s.fault(fmt.Errorf("commit offsets: %w", err)) // kafka-go would go on in this generation for ever
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		s.c.commits.Wait(holds.Denied, fmt.Errorf("commit offsets: %w", err))
	case ctx.Err() == nil:
		s.c.commits.Wait(holds.Kafka, fmt.Errorf("commit offsets: %w", err)) // the next commit covers them
	}
}
