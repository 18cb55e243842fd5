package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// A message may take down what handles it: the process, its container, its Postgres session, the whole server; or it
// may get an error each time that otherwise means an outage. Such a message is found by evidence. A batch that fails
// so again while Postgres is well is made smaller, down to one message, which is put in its lane and set apart; of a
// batch that a process has died over all are. No handler is called for that, and nothing is counted. A lane that is
// set apart has its first message handled by itself, in a transaction of its own, and announced in Postgres before;
// and then those behind it, up to as many as are handled together, for it may be one of them. What a message came to
// there is the message's where this table says so, and then it is an attempt as any other:
//
//	what came of it            what else is known                                  whose it is
//	a time limit was over      the same server is well                             the message's
//	ended its session, or got  the same server is well, and no other transaction   the message's
//	no answer in the commit    of the process was ended meanwhile
//	                           others were                                         nobody's; from then on it is
//	                                                                               tried with nobody else at work in
//	                                                                               the process
//	                           another of the handler came to such an end too,     nobody's: something ends whatever
//	                           and none had success since                          comes
//	                           the server was restarted, or is another one         nobody's
//	short of something, or     the same server is well, and others of the handler  the message's
//	read-only                  had success since the message failed so first
//	                           nobody else came, and it has failed so for long     the message's
//	                           others fail so too, or the server is read-only      nobody's
//	Postgres is away, or no                                                        nobody's
//	connection is to be had
//	our own shutdown                                                               nobody's
//	deadlock, serialization                                                        nobody's, and run again; after
//	                                                                               three times in a row the message's
//	the process died           it was not the last attempt                         the message's, as long as it is
//	                                                                               not the last
//	                           nobody else was at work in the process              the message's
//	any other error                                                                the message's, as everywhere
//
// Well is a server that answers on another connection and lets us write. It is the same one while the time that it was
// started at is: the crash of a server process is no restart.

// suspicious says that an error may be the doing of one message, though it looks like an outage. So may a commit that
// fails whatever was found out.
func suspicious(err error) bool {
	switch failure.Of(err) {
	case failure.TooSlow, failure.Short, failure.ReadOnly, failure.Ended:
		return true
	}
	return errors.Is(err, ErrHandlerTimeout) ||
		errors.Is(err, dedup.ErrNoAnswer) && !errors.Is(err, dedup.ErrLocked) || errors.Is(err, ErrNoConnection) ||
		errors.Is(err, isolate.ErrLost) || errors.As(err, new(*isolate.LostError))
}

// Suspicious says of an error of Process that it may be the doing of one of the messages: Postgres is well, which is
// asked on another connection. Where it comes again, try fewer of them, and set Batch.Apart where one is left.
func (p *Processor) Suspicious(ctx context.Context, err error) bool {
	if !suspicious(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, wellWithin)
	defer cancel()
	server, unwell := p.cfg.Store.Server(ctx)
	return unwell == nil && server.Writable
}

// wellWithin bounds the time of Postgres' answer where it is well.
const wellWithin = 5 * time.Second

// evidence is all that is known beside a message's own failure.
type evidence struct {
	before, after dedup.Server
	othersEnded   bool // transactions of others in this process, while the message was handled
	othersFail    bool // another of the handler failed as in an outage, and none had success since
	othersPass    bool // others of the handler had success since the message failed first, and none has failed since
}

// blames says whether a failure of a message that was alone in its transaction is the message's.
func (e *evidence) blames(sign failure.Sign) bool {
	if e.before.Started != e.after.Started || !e.after.Writable {
		return false
	}
	switch sign {
	case failure.TooSlow:
		return true
	case failure.Ended, failure.Silent:
		return !e.othersEnded && !e.othersFail
	case failure.Short, failure.ReadOnly:
		return e.othersPass
	}
	return false
}

// suspectError is a failure that is a message's by evidence.
type suspectError struct {
	sign failure.Sign
	err  error
}

func (e *suspectError) Error() string {
	return fmt.Sprintf("by itself, while Postgres was well: %v", e.err)
}

func (e *suspectError) Unwrap() error { return e.err }

// handledAlone says of a message's failure that its next attempt must not be made together with other messages.
func handledAlone(err error) bool {
	return errors.As(err, new(*suspectError)) || errors.Is(err, ErrHandlerTimeout)
}

// endedSession says that a message has ended its session, by evidence.
func endedSession(err error) bool {
	var suspect *suspectError
	return errors.As(err, &suspect) && suspect.sign == failure.Ended
}

// announced is an attempt that was counted before it is made.
type announced struct {
	attempt uuid.UUID
	id      uuid.UUID // of the message
	answer  dedup.Answer
	at      time.Time // before it was counted
	alone   bool      // nobody else is at work in the process
	end     func()    // of the attempt
}

// announce counts an attempt on the first message of a lane before it is made. The caller calls end when it was made.
// alone has nobody else be at work in the process meanwhile.
func (p *Processor) announce(ctx context.Context, target *registered, c dedup.Claim, lease time.Duration, alone bool) (
	a announced, err error) {
	a.alone = alone
	if alone {
		stop := p.keep(ctx, target, c)
		a.end = p.work.beginAlone()
		stop()
	} else {
		a.end = p.work.beginSuspect(ctx)
	}
	a.at, a.attempt = time.Now(), uuid.New()
	a.id, _, a.answer, err = p.cfg.Store.Announce(ctx, c, a.attempt, lease, target.retry.MaxAttempts, alone)
	if err == nil && a.answer == dedup.LastOne {
		a.end()
		return p.announce(ctx, target, c, lease, true)
	}
	if err != nil {
		a.end()
		if !errors.Is(err, dedup.ErrNotClaimed) { // it may be counted all the same
			p.cancel(ctx, target, c, a.attempt)
		}
	}
	return a, err
}

// keep has a claim last until it is told to stop: who waits for others to end may wait for as long as a handler may
// take, and all workers would take the lane from one another for ever. Where that takes a while it is a hold.
func (p *Processor) keep(ctx context.Context, target *registered, c dedup.Claim) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	hold := p.cfg.Holds.Place(holds.HandlerKind, target.name)
	go func() {
		defer close(done)
		defer hold.End()
		for n := 0; ctx.Err() == nil; n++ {
			if n > 0 {
				hold.Wait(holds.Alone, errAlone)
			}
			if err := p.cfg.Store.KeepLane(ctx, c, laneLease); err != nil && ctx.Err() == nil {
				p.cfg.Logger.Debug("a claimed lane is not kept", "error", err)
			}
			wait.Sleep(ctx, laneLease/3)
		}
	}()
	return func() { cancel(); <-done }
}

var errAlone = errors.New("a message may have ended the process, or all its sessions")

// mostUnproven caps the suspects in a row that may fail as if Postgres was away before the others have to wait.
const mostUnproven = 10

// workSuspects handles the first message of each lane that is set apart, or was claimed before without getting
// anywhere, and then those behind it, up to most of the lane. What it does not come to while the claims last it gives
// back: another worker would claim it then, and take it for one that got nowhere.
func (p *Processor) workSuspects(ctx context.Context, target *registered, claims []dedup.Claim, most int) error {
	unproven, last := 0, time.Now().Add(laneLease/2)
	for i, c := range claims {
		if i > 0 && time.Now().After(last) {
			return p.release(ctx, claims[i:], 0)
		}
		proven, err := p.workSuspect(ctx, target, c, most)
		if unproven++; proven {
			unproven = 0
		}
		if err != nil || unproven == mostUnproven {
			return errors.Join(err, p.release(ctx, claims[i+1:], 0))
		}
	}
	return nil
}

// workSuspect handles a lane's first message by itself. Where that fails, and nothing proves that it is the message's
// doing, the lane waits a little.
func (p *Processor) workSuspect(ctx context.Context, target *registered, c dedup.Claim, most int) (
	proven bool, err error) {
	s := &suspect{p: p, target: target, claim: c}
	if s.before, err = p.cfg.Store.Server(ctx); err != nil {
		return false, errors.Join(err, p.release(ctx, []dedup.Claim{c}, laneLease))
	}
	lane := isolate.Lane{Scope: c.Scope, Lane: c.Lane}
	attempt, err := p.announce(ctx, target, c, laneLease, p.work.excludes(lane))
	if errors.Is(err, dedup.ErrNotClaimed) {
		return true, nil
	}
	if err != nil {
		return false, errors.Join(err, p.release(ctx, []dedup.Claim{c}, laneLease))
	}
	s.id, s.apart = attempt.id, p.work.isApart(lane, most)
	s.killed, s.alone, s.ended = attempt.answer == dedup.Killed, attempt.alone, p.work.ended.Load()
	s.end = sync.OnceFunc(attempt.end)
	defer s.end()
	err = isolate.Run(ctx, 1, concurrent, func(known *isolate.Findings) error { return s.try(ctx, known) })
	if attempt.answer == dedup.Counted && (err != nil || !s.met) { // it was no attempt
		p.cancel(ctx, target, c, attempt.attempt)
	}
	p.work.setExcluded(lane, s.excluded)
	if errors.Is(err, errOvertaken) {
		return true, p.release(ctx, []dedup.Claim{c}, 0)
	}
	if err == nil {
		p.work.setApart(lane, s.apart)
		if !s.judged {
			p.work.overcame(target, s.at)
		}
		p.work.settled(target, lane)
		return true, nil
	}
	if suspicious(err) && ctx.Err() == nil {
		p.work.unproven(target, lane, s.at, err)
		err = nil
	}
	return false, errors.Join(err, p.release(ctx, []dedup.Claim{c}, laneLease))
}

// suspect is an attempt on a message by itself.
type suspect struct {
	p      *Processor
	target *registered
	claim  dedup.Claim
	id     uuid.UUID // of the message whose attempt was announced
	killed bool
	before dedup.Server
	ended  int64 // others' transactions that were ended before
	alone  bool  // in the process
	end    func()

	met      bool // the lane was still ours, and not empty
	of       isolate.Message
	at       span
	judged   bool
	excluded bool // the next attempt has to be alone in the process
	apart    int  // so many of the lane's first messages are handled by themselves, this one included
}

// errOvertaken says that another message has become the lane's first since the attempt was announced: an earlier one,
// that is read again or was redriven. It has to be announced too.
var errOvertaken = errors.New("an earlier message has come into the lane")

// try handles the message in one transaction, and marks a failure that is the message's.
func (s *suspect) try(ctx context.Context, known *isolate.Findings) error {
	err := s.handle(ctx, known)
	var lost *isolate.LostError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &lost) && lost.GivenUp(known):
		s.judged = true
		return &isolate.LostError{Of: s.of, Err: lost.Err}
	case errors.As(err, &lost), !s.met, s.judged, !suspicious(err):
		return err
	}
	if !s.alone { // else the others would only meet the same server
		s.end()
	}
	s.p.work.noteShort(s.target, s.at, err, time.Now())
	if !s.blamed(ctx, err) {
		return err
	}
	s.judged = true
	return &isolate.LostError{Of: s.of, Err: &suspectError{failure.Of(err), err}}
}

func (s *suspect) handle(ctx context.Context, known *isolate.Findings) error {
	s.met = false
	tx, batch, loan, err := s.p.load(ctx, []dedup.Claim{s.claim}, 2) // the second stays as it is
	if err != nil {
		return err
	}
	defer loan.give()
	defer tx.Rollback(ctx)
	first, others := batch.Entries[:min(1, len(batch.Entries))], batch.Entries[min(1, len(batch.Entries)):]
	s.met = len(first) > 0
	for i := range first {
		e := &first[i]
		if e.Message.ID != s.id {
			s.met = false
			return errOvertaken
		}
		s.of, s.at = isolate.Of(e), spanOf(e.Message, e.Message)
		if !s.killed {
			e.Attempts-- // counted already
		}
	}
	r := s.p.laneRun(tx, s.target, known)
	left := 0
	err = s.p.retry(ctx, r, first, func(ctx context.Context, entries []*dedup.Entry) (err error) {
		if s.killed {
			r.bury(entries)
		} else {
			err = r.handle(ctx, entries)
		}
		left = s.keepApart(first, others)
		return err
	})
	if err == nil {
		s.apart = left
	}
	return err
}

// keepApart has what comes behind the first message be handled by itself too, for it may be the one that was looked
// for: a process that dies tells on nobody. It gives how many of the lane are left for that.
func (s *suspect) keepApart(first, others []dedup.Entry) (left int) {
	if len(others) == 0 || s.apart <= 1 || s.killed || s.judged || first[0].Alone {
		return 0
	}
	others[0].Alone = true
	if first[0].State == dedup.Parked {
		first[0].Alone = true
		return s.apart
	}
	return s.apart - 1
}

// blamed waits until Postgres answers, and decides.
func (s *suspect) blamed(ctx context.Context, err error) bool {
	sign := failure.Of(err)
	after, ok := s.p.awaitServer(ctx)
	if !ok || errors.Is(err, ErrNoConnection) {
		return false
	}
	others := s.p.work.others(s.target, s.at, time.Now())
	e := evidence{before: s.before, after: after, othersEnded: s.p.work.ended.Load() > s.ended,
		othersFail: others == othersFail, othersPass: others == othersPass}
	blamed := e.blames(sign)
	s.excluded = (sign == failure.Ended || sign == failure.Silent) && !blamed && e.othersEnded
	return blamed
}

// awaitServer looks at the server until it answers, or ctx ends.
func (p *Processor) awaitServer(ctx context.Context) (dedup.Server, bool) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, wellWithin)
		server, err := p.cfg.Store.Server(limited)
		cancel()
		if err == nil {
			return server, true
		}
		wait.Sleep(ctx, p.cfg.LanePoll)
	}
	return dedup.Server{}, false
}

// cancel takes a counted attempt back. While Postgres is away it goes on trying, until ctx has ended for a while: an
// outage must not cost an attempt.
func (p *Processor) cancel(ctx context.Context, target *registered, c dedup.Claim, attempt uuid.UUID) {
	hold := p.cfg.Holds.Place(holds.HandlerKind, target.name)
	defer hold.End()
	for {
		last := ctx.Err() != nil
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), laneLease)
		err := p.cfg.Store.CancelAttempt(limited, c, attempt)
		cancel()
		switch {
		case err == nil:
			return
		case last:
			p.cfg.Logger.Warn("an attempt that was none stays counted", "handler", target.name, "error", err)
			return
		}
		hold.Wait(holds.OfPostgres(err), fmt.Errorf("an attempt that was none is not taken back yet: %w", err))
		wait.Sleep(ctx, p.cfg.LanePoll)
	}
}

// bury gives up messages that have killed the process in every attempt, the last one of them with nobody else at work.
func (r *run) bury(entries []*dedup.Entry) {
	for _, e := range entries {
		e.State, e.Reason = dedup.Dead, string(ReasonKilled)
		e.Error = "the process died while it handled this message and nothing else"
		r.p.cfg.Logger.Error("message killed the process again and again; dead letter", "handler", r.target.name,
			"message", e.Message.Place())
	}
}
