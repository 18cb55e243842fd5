package retention

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Keep deletes what is old until ctx ends, in the name of actor: once at the start and then at each interval, as policy
// says each time. It logs what was deleted, and why not, once for each change of reason. It returns nothing: what fails
// is tried again. Its caller waits for it.
func (k *Keeper) Keep(ctx context.Context, policy func() Policy, actor string) {
	var answers sync.WaitGroup
	defer answers.Wait()
	answers.Go(func() { k.Answers.Loop(ctx) })
	k.loop(ctx, policy, actor)
}

func (k *Keeper) loop(ctx context.Context, policy func() Policy, actor string) {
	var told []string
	for ctx.Err() == nil {
		r := policy()
		if r.Deletes() {
			told = k.round(ctx, r, actor, told)
		}
		wait.Sleep(ctx, cmp.Or(r.Interval, time.Hour))
	}
}

// round runs once, and gives the reasons that were told.
func (k *Keeper) round(ctx context.Context, r Policy, actor string, told []string) []string {
	by := operate.By{Actor: actor, Why: why(r)}
	done, err := k.run(ctx, r, by, func(of *operate.Inbox, before map[string]time.Time) (map[string]time.Time, error) {
		return due(ctx, of, before, time.Now())
	})
	if done.IDs > 0 || done.OutboxIDs > 0 || done.Dropped.Days > 0 || done.Dropped.Rows > 0 || done.Dropped.Busy > 0 {
		k.Logger.Info("retention: deleted what is older than it says", done.summary()...)
	}
	switch {
	case ctx.Err() != nil, errors.Is(err, operate.ErrElsewhere):
		return told
	case err != nil:
		return tell(k.Logger, told, "retention failed, and is tried again: ",
			[]Refusal{{Key: "error " + failure.Code(err), Text: err.Error() + advice(err)}})
	case r.Force:
		return nil
	}
	return tell(k.Logger, told, "retention: IDs are kept, because their messages may come again: ", done.Plan.Refused())
}

// tell logs the reasons that were not told before.
func tell(log *slog.Logger, told []string, what string, reasons []Refusal) (now []string) {
	for _, r := range reasons {
		if !slices.Contains(told, r.Key) {
			log.Warn(what + r.Text)
		}
		now = append(now, r.Key)
	}
	return now
}

// advice says what to do about an error, where that is known.
func advice(err error) string {
	if failure.Denied(err) {
		return ": grant the role firstseen_retention to this login (see `firstseen migrate roles --help`)"
	}
	return ""
}
