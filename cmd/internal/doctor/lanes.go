package doctor

import (
	"context"
	"time"

	"github.com/firstseen/firstseen/dedup/operate"
)

var laneChecks = []Check{
	{
		Name: "lanes.overdue", About: "lanes that are due are worked on", needs: needsInbox, run: lanesOverdue,
		Do: map[Level]string{
			Warning: "See that a consumer runs that has these handlers in its config, and that they are not paused " +
				"(`firstseen pause`). If it runs, its lane workers are too slow: look at the handler's duration.",
		},
	},
	{
		Name: "lanes.deadly", About: "no message takes the process down", needs: needsInbox, run: lanesDeadly,
		Do: map[Level]string{Warning: "Look for a crash or an out-of-memory kill of the consumer at these times, " +
			"and mend the handler. A message that has had all its attempts so goes to the dead letters."},
	},
	{
		Name: "lanes.parked", About: "no message waits for very long", needs: needsInbox, run: lanesParked,
		Do: map[Level]string{Warning: "See what it fails with: `firstseen inbox list --status failed`. " +
			"Set the handler's retry.max_age to have such messages given up."},
	},
	{
		Name: "lanes.unavailable", About: "handlers have what they need", needs: needsInbox, run: lanesUnavailable,
		Do: map[Level]string{Warning: "Bring back what the error names: " +
			"the receiver of a webhook, a grant, a table, a function. The messages go on by themselves then, and " +
			"no attempt is spent. Messages that wait though it is back are shown by `firstseen inbox list`."},
	},
	{
		Name: "lanes.fruitless", About: "partitions that are acquired get on", needs: needsInbox | needsConfig,
		run: positionsFruitless,
		Do: map[Level]string{Warning: "The process dies or is rebalanced before a batch is done. Look at its end in " +
			"the log, at timeouts.handler, and at how long the first batch takes."},
	},
	{
		Name: "dead.waiting", About: "dead letters are looked after", needs: needsInbox, run: deadWaiting,
		Do: map[Level]string{
			Warning: "Redrive or discard them: `firstseen dead list`, `firstseen dead redrive`, " +
				"`firstseen dead discard`. Those without a message ID can't be redriven: see ids.missing.",
			Info: "Look at them: `firstseen dead list`.",
		},
	},
	{
		Name: "dead.jobs", About: "jobs on messages get on", needs: needsInbox, run: deadJobs,
		Do: map[Level]string{Warning: "See that a process of this schema runs, firstseen run or a program with package " +
			"consumer/service: any one does them, a replay one that reads its topic for its group and has its handler. Its log " +
			"says what keeps it from that. A replay that was stopped goes on with `firstseen jobs resume`, once what stopped it is " +
			"put right. Or cancel the job: `firstseen jobs cancel`."},
	},
	{
		Name: "dead.unpublished", About: "dead letters reach the dead letter topic", needs: needsInbox | needsConfig,
		run: deadUnpublished,
		Do: map[Level]string{
			Warning: "See that a consumer runs, that the topic exists and takes messages as large as those of the " +
				"topics that are read (kafka.dead_letter_topic), and that its ACLs let the consumer write.",
			Info: "They stay in Postgres. Raise the dead letter topic's max.message.bytes, then: " +
				"update firstseen.dead_letters set published_at = null where published_at = 'infinity'.",
		},
	},
}

func lanesOverdue(ctx context.Context, p *target, r *report) error {
	f, err := p.stuck(ctx, p.limits.overdue)
	if f.Overdue > 0 {
		r.warn("%s lanes have been due for more than %s, the first since %s",
			capped(f.Overdue, 10_000), p.limits.overdue, minute(f.Since))
	}
	r.ok("no lane has been due for more than %s", p.limits.overdue)
	return err
}

func minute(at time.Time) string { return at.UTC().Format("2006-01-02 15:04 MST") }

func lanesDeadly(ctx context.Context, p *target, r *report) error {
	f, err := p.stuck(ctx, p.limits.overdue)
	if f.Deadly > 0 {
		r.warn("%s lanes were taken by workers that died, up to %d times in a row", capped(f.Deadly, 10_000), f.Claims)
	}
	r.ok("no lane's workers have died three times in a row")
	return err
}

func lanesParked(ctx context.Context, p *target, r *report) error {
	backlog, err := p.inbox.Backlog(ctx)
	for _, b := range backlog {
		if waited := p.now().Sub(b.OldestAt); !b.OldestAt.IsZero() && waited > p.limits.parked {
			r.warn("handler %s: %s messages are parked, the oldest for %s",
				b.Handler, capped(b.Parked(), operate.BacklogCap), age(waited.Seconds()))
		}
	}
	r.ok("no message has been parked for more than %s", p.limits.parked)
	return err
}

func lanesUnavailable(ctx context.Context, p *target, r *report) error {
	waiting, err := p.waiting(ctx)
	for _, w := range waiting {
		r.warn("handler %s: %s messages wait for something that it needs, the first for %s: %s", w.Handler,
			capped(w.Messages, 10_000),
			age(p.now().Sub(w.Since).Seconds()), w.Error)
	}
	r.ok("no message waits for something that its handler needs")
	return err
}

func positionsFruitless(ctx context.Context, p *target, r *report) error {
	const often = 3
	positions, err := p.inbox.Positions(ctx, p.Config.Group)
	for _, f := range positions {
		if f.Fruitless >= often {
			r.warn("%s/%d was acquired %d times and has not moved from %d since; its last owner: %s",
				f.Topic, f.Partition, f.Fruitless, f.Next, f.Owner)
		}
	}
	r.ok("positions looked at: %d", len(positions))
	return err
}

func deadWaiting(ctx context.Context, p *target, r *report) error {
	const many = 1000
	backlog, err := p.inbox.Backlog(ctx)
	if err != nil {
		return err
	}
	old, _, err := p.inbox.Messages(ctx, operate.Listing{Status: operate.StatusDead, Limit: 1,
		Filter: operate.Filter{To: p.now().Add(-p.limits.dead)}})
	for _, b := range backlog {
		switch {
		case b.Dead >= many:
			r.warn("handler %s: %s dead letters wait", b.Handler, capped(b.Dead, operate.BacklogCap))
		case b.Dead > 0:
			r.info("handler %s: %d dead letters wait", b.Handler, b.Dead)
		}
	}
	if len(old) > 0 {
		r.warn("some have waited for more than %s", p.limits.dead)
	}
	r.ok("no dead letter waits")
	return err
}

func deadJobs(ctx context.Context, p *target, r *report) error {
	jobs, err := p.standingJobs(ctx, p.limits.overdue)
	for _, j := range jobs {
		if j.Stopped != "" {
			r.warn("job %s, a %s of %s's in inbox %s, was stopped at %s, with %d done: %s", j.ID, j.Kind, j.Actor, j.Inbox,
				minute(j.Since), j.Done, j.Stopped)
			continue
		}
		r.warn("job %s, a %s of %s's in inbox %s, stands since %s, with %d done", j.ID, j.Kind, j.Actor, j.Inbox,
			minute(j.Since), j.Done)
	}
	r.ok("no job has stood for more than %s", p.limits.overdue)
	return err
}

func deadUnpublished(ctx context.Context, p *target, r *report) error {
	if p.Config.DeadLetterTopic == "" {
		r.ok("no dead letter topic is configured")
		return nil
	}
	f, err := p.publication(ctx, p.limits.overdue)
	if f.Waiting > 0 {
		r.warn("%s dead letters are not in %s yet, the first since %s",
			capped(f.Waiting, 10_000), p.Config.DeadLetterTopic, minute(f.Since))
	}
	if f.Refused > 0 {
		r.info("%s dead letters were refused by the broker of %s", capped(f.Refused, 10_000), p.Config.DeadLetterTopic)
	}
	r.ok("all dead letters are in %s", p.Config.DeadLetterTopic)
	return err
}
