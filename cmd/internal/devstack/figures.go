package devstack

import (
	"context"
	"time"
)

// figures are all numbers at one moment, as the view shows them.
type figures struct {
	booked
	Elapsed  time.Duration
	Produced int64
	Total    tally // of what was produced
	Expected tally // of what the consumer has reached
	Known    bool  // Expected is right
	Sent     bool  // through an outbox, so that effects come later
	Lag      int64
	Rate     float64 // messages received a second, lately
	Crashes  int
	PID      int
	Down     time.Duration // since the consumer died, until its successor takes messages; 0: it lives
	Back     time.Duration // for which nobody took messages, if that was over some seconds ago; else 0
	Refused  time.Duration // for which the handler still fails for the one account
	Resent   int           // messages that were sent again, if that was some seconds ago; else 0
	Chaos    bool          // the consumer is killed again and again
}

// counter reads the figures, time after time.
type counter struct {
	stack     *stack
	ledger    *ledger
	consumers *consumers
	faults    *faults
	start     time.Time
	rate      rate
}

// read asks Postgres first, then the ledger: what was booked at that moment was produced before it.
func (c *counter) read(ctx context.Context) (f figures, err error) {
	if f.booked, err = readBooked(ctx, c.stack.db); err != nil {
		return f, err
	}
	if f.Lag, err = c.stack.broker.lag(ctx); err != nil {
		return f, err
	}
	f.Expected, f.Known = c.ledger.at(f.Reached)
	f.Produced, f.Total = c.ledger.totals()
	f.PID, f.Crashes, f.Down, f.Back = c.consumers.state()
	f.Refused, f.Chaos = c.faults.state()
	f.Resent = c.faults.again()
	f.Elapsed, f.Sent = time.Since(c.start), c.stack.options.Outbox
	f.Rate = c.rate.next(time.Now(), f.Received)
	return f, nil
}

// right says whether what was booked so far, and what is parked, is what should be; true while that is unknown. While
// messages are on their way through an outbox their effects are missing, and only one too many can be told.
func (f *figures) right() bool {
	if f.Known && f.Sent {
		return f.Effects <= f.Expected.Unique
	}
	return !f.Known || f.Effects == f.due().Unique && f.Balance == f.due().Balance
}

// due is what should be booked by now: all that the consumer has reached, but for what is parked.
func (f *figures) due() tally { return f.Expected.plus(tally{-f.Parked, -f.Waiting}) }

func (f *figures) summary() Summary {
	return Summary{
		Produced: f.Produced, Unique: f.Total.Unique, Received: f.Received, New: f.New, Duplicates: f.Received - f.New,
		Effects: f.Effects, Crashes: f.Crashes, Lag: f.Lag, Balance: f.Balance, ExpectedBalance: f.Total.Balance,
	}.judge()
}

// rate is a speed over the last two seconds.
type rate struct {
	samples []sample
}

type sample struct {
	at time.Time
	n  int64
}

func (r *rate) next(at time.Time, n int64) float64 {
	const window = 2 * time.Second
	for len(r.samples) > 1 && at.Sub(r.samples[0].at) > window {
		r.samples = r.samples[1:]
	}
	r.samples = append(r.samples, sample{at, n})
	first := r.samples[0]
	if took := at.Sub(first.at).Seconds(); took > 0 {
		return float64(n-first.n) / took
	}
	return 0
}
