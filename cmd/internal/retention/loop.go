package retention

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Loop runs retention until ctx ends, once at the start and then at each retention.interval, as settings says each
// time. It logs what was deleted, and why not, once for each change of reason. Its caller waits for it.
func (k *Keeper) Loop(ctx context.Context, settings func() config.Retention, actor string) {
	var told []string
	for ctx.Err() == nil {
		r := settings()
		if r.IDs > 0 || r.Inbox > 0 ||
			slices.ContainsFunc(values(r.Handlers), func(d time.Duration) bool { return d > 0 }) {
			told = k.round(ctx, r, actor, told)
		}
		timer := time.NewTimer(cmp.Or(r.Interval, time.Hour))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func values(m map[string]time.Duration) (all []time.Duration) {
	for _, d := range m {
		all = append(all, d)
	}
	return all
}

// round runs once, and gives the reasons that were told.
func (k *Keeper) round(ctx context.Context, r config.Retention, actor string, told []string) []string {
	by := operate.By{Actor: actor, Why: why(r)}
	done, err := k.run(ctx, r, by, func(before map[string]time.Time) (map[string]time.Time, error) {
		return k.due(ctx, before, time.Now())
	})
	if done.IDs > 0 || done.Dropped.Days > 0 || done.Dropped.Rows > 0 || done.Dropped.Busy > 0 {
		k.Logger.Info("retention: deleted what is older than it says", done.summary()...)
	}
	switch {
	case ctx.Err() != nil, errors.Is(err, operate.ErrElsewhere):
		return told
	case err != nil:
		return k.tell(told, "retention failed, and is tried again: ",
			[]Refusal{{Key: "error " + failure.Code(err), Text: err.Error() + advice(err)}})
	case r.Force:
		return nil
	}
	return k.tell(told, "retention: IDs are kept, because their messages may come again: ", done.Plan.Refused())
}

// tell logs the reasons that were not told before.
func (k *Keeper) tell(told []string, what string, reasons []Refusal) (now []string) {
	for _, r := range reasons {
		if !slices.Contains(told, r.Key) {
			k.Logger.Warn(what + r.Text)
		}
		now = append(now, r.Key)
	}
	return now
}

// advice is what to do about an error, where that is known.
func advice(err error) string {
	if failure.Denied(err) {
		return ": grant the role firstseen_retention to this login (see `firstseen migrate print --roles`)"
	}
	return ""
}
