package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

var idChecks = []Check{
	{
		Name: "ids.empty", About: "no nil or max UUID was taken for an ID", needs: needsInbox, run: idsEmpty,
		Do: map[Level]string{
			Fault: "Have the producer set real IDs, and the code that sets Message.ID refuse these: " +
				"every message with such an ID after the first was taken for its copy, and had no effect.",
		},
	},
	{
		Name: "ids.missing", About: "messages come with a usable ID", needs: needsInbox, run: idsMissing,
		Do: map[Level]string{
			Warning: "Compare the topic's id with what its producers send: " +
				"`firstseen dead list --reason missing_id`, `firstseen dead show ID`. Correct it, or add a source " +
				"such as hash, restart, and `firstseen replay` the offsets: that handles them under their IDs. " +
				"Then discard the letters; they can't be redriven.",
			Info: "Look at them: `firstseen dead list`; the reason says what is wrong with the ID.",
		},
	},
	{
		Name: "ids.shared", About: "different messages do not share an ID", needs: needsInbox, run: idsShared,
		Do: map[Level]string{
			Warning: "Have the producer set an ID for each message: all but the first under an ID had no effect. " +
				"`firstseen conflicts list` shows them; they are kept whole.",
			Info: "Look at them: `firstseen conflicts list`, `firstseen conflicts show ID`. The first copy took " +
				"effect; decide whether it was the right one.",
		},
	},
	{
		Name: "ids.deterministic", About: "the same message comes under the same ID", needs: needsInbox,
		run: idsDeterministic,
		Do: map[Level]string{
			Warning: "Have the producer make the ID once, with the message, and not at each attempt to send; " +
				"or take the ID from the content: id: hash, or hash:/POINTER. As it is, copies take effect again.",
			Info: "Find out whether these are copies that the producer sent again under new " +
				"IDs, or messages that are alike by right.",
		},
	},
}

func idsEmpty(ctx context.Context, p *target, r *report) error {
	found, err := p.emptyIDs(ctx)
	for _, e := range found {
		r.fault("%s was taken for an ID by the handler %s%s", e.ID, e.Handler, ofTenant(e.Tenant))
	}
	r.ok("there is no such ID")
	return err
}

func ofTenant(tenant string) string {
	if tenant == "" {
		return ""
	}
	return " of tenant " + tenant
}

func idsMissing(ctx context.Context, p *target, r *report) error {
	const tooMany = 0.01
	n, err := p.newest(ctx, p.limits.sample)
	if err != nil {
		return err
	}
	var refused int64
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(n.Refused)) {
		refused += n.Refused[reason]
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, n.Refused[reason]))
	}
	share := float64(refused) / max(1, float64(refused+n.Messages))
	seen := fmt.Sprintf("%d of %d messages since %s came without a usable ID (%s)", refused, refused+n.Messages,
		n.Since.UTC().Format("2006-01-02 15:04"), strings.Join(reasons, ", "))
	switch {
	case refused == 0:
		r.ok("all of the newest messages did; looked at: %d", n.Messages)
	case share >= tooMany:
		r.warn("%s", seen)
	default:
		r.info("%s", seen)
	}
	return nil
}

func idsShared(ctx context.Context, p *target, r *report) error {
	const suspicious = 5
	c, err := p.clashes(ctx)
	switch {
	case err != nil:
		return err
	case c.WorstCopies >= suspicious:
		r.warn("%d copies with another content came under the ID %s; there are %s such copies in all", c.WorstCopies,
			c.Worst, capped(c.Copies, 20_000))
	case c.Copies > 0:
		r.info("%s copies came under a known ID with another content, %d of them within a day",
			capped(c.Copies, 20_000), c.Recent)
	}
	r.ok("there is no conflict")
	return nil
}

func idsDeterministic(ctx context.Context, p *target, r *report) error {
	const few, many, enough = 0.02, 0.2, 20
	n, err := p.repeats(ctx, p.limits.sample/2)
	if err != nil {
		return err
	}
	share := float64(n.Repeated) / max(1, float64(n.Messages))
	switch {
	case n.Messages < enough || share < few:
		r.ok("%d of %d of the newest messages had the content of an earlier one", n.Repeated, n.Messages)
	case share >= many:
		r.warn("%d of %d of the newest messages had key and value of an earlier one, under an ID of their own",
			n.Repeated, n.Messages)
	default:
		r.info("%d of %d of the newest messages had key and value of an earlier one, under an ID of their own",
			n.Repeated, n.Messages)
	}
	return nil
}

// capped is a number that was counted up to a limit.
func capped(n, limit int64) string {
	if n >= limit {
		return "at least " + strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n, 10)
}
