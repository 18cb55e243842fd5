package doctor

import (
	"context"
	"time"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
)

var holdChecks = []Check{
	{
		Name: "holds.waiting", About: "nothing waits in the running processes, as they told last", needs: needsInbox,
		run: holdsWaiting,
		Do: map[Level]string{
			Fault:   "Decide, as the finding says; see held partitions in docs/OPERATIONS.md.",
			Warning: "Do what the finding says; it goes on by itself once that is mended.",
			Info:    "Look again in a minute: what has just begun may be over then.",
		},
	},
}

// lastingHold is from when on a hold is no blip.
const lastingHold = time.Minute

func holdsWaiting(ctx context.Context, p *target, r *report) error {
	told, err := p.inbox.Holds(ctx)
	looked := 0
	for _, t := range told {
		if p.Config != nil && t.Consumer != p.Config.Group && t.Consumer != dedup.OutboxRelay {
			continue
		}
		if t.Stale {
			r.advise(Warning, "See whether the process runs: it was killed, or can't reach Postgres. If it is gone "+
				"for good nothing has to be done.", "%s of %s has not told since %s what it waits for, %d holds then",
				t.Owner, t.Consumer, minute(t.ToldAt), len(t.Holds))
			continue
		}
		looked++
		for i := range t.Holds {
			p.tellHold(r, t.Owner, &t.Holds[i])
		}
	}
	r.ok("nothing waits; processes that did: %d", looked)
	return err
}

func (p *target) tellHold(r *report, owner string, h *holds.Hold) {
	e, since := h.Entry(), p.now().Sub(h.Since)
	level := Info
	switch {
	case e.Decision:
		level = Fault
	case since > lastingHold:
		level = Warning
	}
	r.advise(level, e.Do, "%s has waited for %s in %s: %s (%s): %s", h.Subject, age(since.Seconds()), owner, e.Means,
		h.Code, h.Reason)
}
