package doctor

import (
	"context"
	"time"
)

var httpChecks = []Check{
	{
		Name: "http.expired", About: "answers to HTTP requests that have expired are deleted", needs: needsSchema,
		run: httpExpired,
		Do: map[Level]string{Warning: "Run `firstseen run`, or idempotency.RunSweep in the programs that have the " +
			"middleware: both delete them hourly. Where one does, its log says what keeps it from that: a right of " +
			"firstseen_consumer that the login lacks, say. They do no harm but take room."},
	},
	{
		Name: "http.claims", About: "no process has left an HTTP request behind", needs: needsSchema, run: httpClaims,
		Do: map[Level]string{Warning: "See in the log of the program that has the route how its processes ended at " +
			"that time. What these requests do elsewhere may have happened: look there. Nothing is stuck: a client " +
			"that sends such a request again has it run; `firstseen explain --idempotency-key` tells of one."},
	},
	{
		Name: "http.fresh_keys", About: "clients keep their key from one try to the next", needs: needsSchema,
		run: httpFreshKeys,
		Do: map[Level]string{
			Warning: "Have the client make the key once, with the thing to do, and not at each try: as it is, what " +
				"it sends again takes effect again. docs/HTTP.md has such a loop.",
			Info: "Find out whether a client sent these again under new keys, or meant the same thing twice.",
		},
	},
	{
		Name: "http.shared_keys", About: "no key comes from many callers", needs: needsSchema, run: httpSharedKeys,
		Do: map[Level]string{Info: "A key is its caller's own, so nothing was mixed up. But where such keys are " +
			"constants, or counters that begin anew, the caller's own requests meet under them: have clients make " +
			"random ones, UUIDs say. Numbers that each caller counts for ever, such as of its orders, are as good."},
	},
	{
		Name: "ingress.queued", About: "messages that came by HTTP are worked on", needs: needsInbox, run: ingressQueued,
		Do: map[Level]string{Warning: "See that a process runs whose config has this handler for the topic: " +
			"`firstseen run`, or a program of yours with handlers.Processor.RunLanes. If one does, the handler is too " +
			"slow for what comes: look at its duration."},
	},
	{
		Name: "ingress.kept", About: "what is kept of messages by HTTP goes with the inbox",
		needs: needsInbox | needsConfig, run: ingressKept,
		Do: map[Level]string{
			Warning: "See in the log of `firstseen run` what keeps retention from its work, and run " +
				"`firstseen retention run`: the login needs the role firstseen_retention.",
			Info: "Set retention.inbox, for as long as messages are to be shown: keys stay known without them. Or leave " +
				"it, where they are to be kept for ever.",
		},
	},
}

func httpExpired(ctx context.Context, p *target, r *report) error {
	f, err := p.expired(ctx, p.limits.unswept)
	if f.Expired > 0 {
		r.warn("%s answers have been expired for more than %s, the first since %s; "+
			"the table idempotency has about %d rows, %s",
			capped(f.Expired, 10_000), p.limits.unswept, minute(f.Since), f.Rows, size(f.Bytes))
	}
	r.ok("none has been expired for more than %s; the table idempotency has about %d rows, %s", p.limits.unswept,
		f.Rows, size(f.Bytes))
	return err
}

func httpClaims(ctx context.Context, p *target, r *report) error {
	found, err := p.leftBehind(ctx, p.limits.overdue, p.limits.sample)
	for _, f := range found {
		r.warn("%s: %d requests were claimed by a process that did not end them, and by none since; "+
			"the first claim ended at %s",
			f.Route, f.Requests, minute(f.Since))
	}
	r.ok("none of the newest requests was")
	return err
}

func httpFreshKeys(ctx context.Context, p *target, r *report) error {
	const few, many, enough = 0.02, 0.2, 20
	found, err := p.freshKeys(ctx, p.limits.sample)
	for _, f := range found {
		level, share := Info, float64(f.Repeated)/float64(max(1, f.Requests))
		if f.Requests < enough || share < few {
			continue
		}
		if share >= many {
			level = Warning
		}
		r.add(level, "%s: %d of the newest %d requests were the same as one of the five minutes before, "+
			"under another key",
			f.Route, f.Repeated, f.Requests)
	}
	r.ok("routes looked at: %d", len(found))
	return err
}

func httpSharedKeys(ctx context.Context, p *target, r *report) error {
	const many = 10
	found, err := p.sharedKeys(ctx, many, p.limits.sample)
	for _, f := range found {
		r.info("%s: %d keys came from %d callers or more each, one of them from %d", f.Route, f.Keys, many, f.Callers)
	}
	r.ok("none of the newest came from %d or more", many)
	return err
}

func ingressQueued(ctx context.Context, p *target, r *report) error {
	found, err := p.idle(ctx, p.limits.overdue)
	for _, f := range found {
		r.warn("handler %s: messages by HTTP of topic %s have been due for more than %s in %s lanes, "+
			"the first since %s",
			f.Handler, f.Topic, p.limits.overdue, capped(f.Lanes, 10_000), minute(f.Since))
	}
	r.ok("none has been due for more than %s", p.limits.overdue)
	return err
}

func ingressKept(ctx context.Context, p *target, r *report) error {
	kept := p.Config.Retention.Inbox
	at := p.limits.enqueued
	if kept > 0 {
		at = kept + 24*time.Hour
	}
	f, err := p.enqueued(ctx, p.now().Add(-at), p.limits.sample)
	switch {
	case f.Old > 0 && kept > 0:
		r.warn("%s messages by HTTP are done, older than retention.inbox (%s) and kept all the same, "+
			"the first since %s",
			capped(f.Old, int64(p.limits.sample)), kept, minute(f.Since))
	case f.Old > 0:
		r.info("the table enqueued has had messages by HTTP since %s, and retention.inbox is not set: "+
			"it has about %d rows, %s",
			minute(f.Since), f.Rows, size(f.Bytes))
	}
	r.ok("the table enqueued has about %d rows, %s", f.Rows, size(f.Bytes))
	return err
}
