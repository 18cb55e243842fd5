package service

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// Health is the program's health, as /healthz tells it.
type Health struct {
	Status string  `json:"status" enum:"ok,degraded,unhealthy" doc:"The worst of the checks'."`
	Checks []Check `json:"checks"`
}

// Check is one thing that was looked at.
type Check struct {
	Name   string   `json:"name" enum:"postgres,kafka,group,backlog,oldest_age,failure_ratio,held,paused,topics,dead_letters,outbox_backlog,outbox_oldest_age,outbox_failure_ratio,outbox_dead_letters"`
	Status string   `json:"status" enum:"ok,degraded,unhealthy"`
	Reason string   `json:"reason" doc:"Why it is so, in words."`
	Value  *float64 `json:"value" doc:"What was measured; null: it could not be, or is no number."`
	Limit  *float64 `json:"limit" doc:"The limit that the value is beyond, or the next one; null: there is none."`
	Unit   string   `json:"unit" enum:",seconds,messages,ratio,topics,holds,pauses"`
}

// The states of health, the better first.
const (
	healthy   = "ok"
	degraded  = "degraded"
	unhealthy = "unhealthy"
)

var severity = []string{healthy, degraded, unhealthy}

// facts are measured once, and health is judged by them.
type facts struct {
	now    time.Time
	limits Limits

	shard    string // empty: there is one server
	opened   bool   // Postgres was reached once, and its schema was right
	postgres error
	status   consumer.Status
	rates    handlers.Rates
	backlog  []operate.Backlog // nil where Postgres does not answer
	dead     *int64            // within an hour; nil: it could not be counted
	pauses   []dedup.Pause
	outbox   *outboxFacts // nil: this process does not send out of it
}

func (f *facts) judge() Health {
	h := Health{Checks: []Check{f.checkPostgres(), f.checkKafka(), f.checkGroup(), f.checkBacklog(), f.checkAge(),
		f.checkFailures(), f.checkHeld(), f.checkPaused(), f.checkTopics(), f.checkDead()}}
	h.Checks = append(h.Checks, f.checkOutbox()...)
	if f.status.State == Watching {
		h.Checks = slices.DeleteFunc(h.Checks, func(c Check) bool { return slices.Contains(ofConsumers, c.Name) })
	}
	worst := 0
	for _, c := range h.Checks {
		worst = max(worst, slices.Index(severity, c.Status))
	}
	h.Status = severity[worst]
	return h
}

func (f *facts) checkPostgres() Check {
	c := Check{Name: "postgres", Status: healthy, Reason: "it answers"}
	switch {
	case !f.opened:
		c.Status, c.Reason = degraded,
			"it has not been reached since the start, or its schema is not there: see the log"
	case f.postgres != nil:
		c.Status, c.Reason = degraded, "it does not answer: messages wait in Kafka, and none is lost"
	}
	if f.shard != "" {
		c.Reason = "shard " + f.shard + ": " + c.Reason
	}
	return c
}

func (f *facts) checkKafka() Check {
	c := Check{Name: "kafka", Status: healthy, Reason: "it answers"}
	if f.status.State == Sending {
		c.Reason = "nothing is read from it; where it keeps messages from being sent that is held"
	}
	if !f.status.KafkaSince.IsZero() {
		silent := f.now.Sub(f.status.KafkaSince)
		c.Status, c.Reason = degraded, "no broker has answered for "+spoken(silent)
		c.Value, c.Unit = ptr(silent.Seconds()), "seconds"
	}
	return c
}

// joinLimit bounds the time that joining the group may take: a rebalance has to wait for all members.
const joinLimit = 2 * time.Minute

func (f *facts) checkGroup() Check {
	c := Check{Name: "group", Status: healthy, Reason: counted(len(f.status.Partitions), "partition") + " assigned"}
	since := f.now.Sub(f.status.Since)
	switch f.status.State {
	case consumer.Consuming:
	case consumer.Joining:
		c.Reason, c.Value, c.Limit, c.Unit = "joining for "+spoken(since),
			ptr(since.Seconds()), ptr(joinLimit.Seconds()),
			"seconds"
		if since > joinLimit {
			c.Status = degraded
		}
	case Sending:
		c.Reason = "none: no topics are read"
	case consumer.Draining:
		c.Reason = "giving partitions up, for a rebalance or the end"
	default:
		c.Status, c.Reason = degraded,
			"not a member yet: no topic of the config has been found, or nothing is reached: see the log"
	}
	return c
}

func (f *facts) checkBacklog() Check {
	inKafka, _ := view.Lag(f.status.Partitions)
	parked, capped := int64(0), false
	for _, b := range f.backlog {
		parked += b.Parked()
		capped = capped || b.Capped
	}
	c := Check{Name: "backlog", Unit: "messages",
		Reason: fmt.Sprintf("%d messages wait in Kafka for this process, and %d are parked", inKafka, parked)}
	if f.status.State == Watching {
		c.Reason = fmt.Sprintf("%d messages are parked; what waits in Kafka is not known here", parked)
	}
	if capped {
		c.Reason += " or more: not all are counted"
	}
	c.hold(float64(inKafka+parked), float64(f.limits.Degraded.Backlog), float64(f.limits.Unhealthy.Backlog))
	if f.backlog == nil {
		c.Reason = fmt.Sprintf("%d messages wait in Kafka for this process; "+
			"how many are parked could not be found out", inKafka)
		if f.opened && f.postgres == nil && c.Status == healthy {
			c.Status = degraded // it answers, but not this, and nobody knows how much it is
		}
	}
	return c
}

func (f *facts) checkAge() Check {
	_, oldest := view.Lag(f.status.Partitions)
	where := "in Kafka"
	for _, b := range f.backlog {
		if !b.OldestAt.IsZero() && f.now.Sub(b.OldestAt) > oldest {
			oldest, where = f.now.Sub(b.OldestAt), "parked for handler "+b.Handler
		}
	}
	c := Check{Name: "oldest_age", Unit: "seconds", Reason: "no message waits"}
	if f.status.State == Watching {
		c.Reason = "no message is parked"
	}
	if oldest > 0 {
		c.Reason = "the oldest message has waited for " + spoken(oldest) + ", " + where
	}
	c.hold(oldest.Seconds(), f.limits.Degraded.OldestAge.Seconds(), f.limits.Unhealthy.OldestAge.Seconds())
	return c
}

func (f *facts) checkFailures() Check { return checkRates("failure_ratio", f.rates, f.limits) }

func checkRates(name string, r handlers.Rates, limits Limits) Check {
	c := Check{Name: name, Unit: "ratio", Reason: fmt.Sprintf("%d of %s failed in the last %s", r.Failed,
		counted(int(r.Failed+r.Handled), "attempt"), spoken(r.Over))}
	c.hold(r.FailureRatio, limits.Degraded.FailureRatio, limits.Unhealthy.FailureRatio)
	return c
}

// hold sets the status by what the value is beyond. A limit of 0 is none.
func (c *Check) hold(value, mayBe, mustNotBe float64) {
	c.Value, c.Limit, c.Status = ptr(value), view.OrNull(mayBe), healthy
	switch {
	case mustNotBe > 0 && value > mustNotBe:
		c.Status, c.Limit = unhealthy, ptr(mustNotBe)
	case mayBe > 0 && value > mayBe:
		c.Status = degraded
	case mayBe == 0:
		c.Limit = view.OrNull(mustNotBe)
	}
}

func (f *facts) checkHeld() Check {
	list := f.status.Holds
	c := Check{Name: "held", Status: healthy, Unit: "holds", Value: ptr(float64(len(list))), Reason: "nothing is held"}
	var decisions []string
	for i := range list {
		c.Status = degraded
		if list[i].Entry().Decision && !slices.Contains(decisions, list[i].Code) {
			decisions = append(decisions, list[i].Code)
		}
	}
	if len(list) > 0 {
		c.Reason = "held: " + listed(view.List(list, func(h *holds.Hold) string {
			return fmt.Sprintf("%s for %s (%s)", h.Subject, spoken(f.now.Sub(h.Since)), h.Code)
		}))
	}
	for _, code := range decisions {
		c.Status = unhealthy
		c.Reason += "; " + code + " waits for a person's decision: " + holds.EntryOf(code).Do
	}
	return c
}

func (f *facts) checkDead() Check {
	return checkLetters("dead_letters", f.dead, "firstseen dead list", f.limits)
}

// checkLetters is for dead letters that came within an hour; nil: they could not be counted.
func checkLetters(name string, dead *int64, command string, limits Limits) Check {
	c := Check{Name: name, Status: healthy, Unit: "messages", Reason: "how many there are could not be found out"}
	if dead != nil {
		c.Reason = fmt.Sprintf("%d messages went to the dead letters within an hour and are there; %s shows why",
			*dead, command)
		c.hold(float64(*dead), float64(limits.Degraded.DeadLetters), float64(limits.Unhealthy.DeadLetters))
	}
	return c
}

// checkTopics looks at the topics that are to be read, for a process that has others of them reads on.
func (f *facts) checkTopics() Check {
	c := Check{Name: "topics", Status: healthy, Unit: "topics", Reason: "all can be read, as far as is known"}
	var held []string
	for _, t := range f.status.Topics {
		if t.Held != "" {
			e := holds.EntryOf(t.Held)
			held = append(held,
				fmt.Sprintf("%s for %s: %s (%s): %s", t.Name, spoken(f.now.Sub(t.HeldSince)), e.Means, t.Held, e.Do))
		}
	}
	if c.Value = ptr(float64(len(held))); len(held) > 0 {
		c.Status, c.Reason = degraded,
			fmt.Sprintf("%d of %s can't be read: %s", len(held), counted(len(f.status.Topics), "topic"), listed(held))
	}
	return c
}

func (f *facts) checkPaused() Check {
	c := Check{Name: "paused", Status: healthy, Unit: "pauses", Value: ptr(float64(len(f.pauses))),
		Reason: "nothing is paused"}
	if len(f.pauses) > 0 {
		c.Reason = "paused by operators: " + listed(view.List(f.pauses,
			func(p *dedup.Pause) string { return p.String() }))
	}
	return c
}

// maxListed caps the things that a reason names.
const maxListed = 10

func listed(things []string) string {
	if more := len(things) - maxListed; more > 0 {
		things = append(slices.Clone(things[:maxListed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(things, ", ")
}

// spoken is a duration without more digits than matter.
func spoken(d time.Duration) string {
	unit := time.Millisecond
	for _, u := range []time.Duration{time.Second, time.Minute} {
		if d > 100*u {
			unit = u
		}
	}
	text := d.Round(unit).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func ptr[T any](v T) *T { return &v }
