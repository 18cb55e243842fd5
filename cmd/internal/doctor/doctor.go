// Package doctor checks what a troubleshooting guide asks a person to check: Postgres, the schema, what the inbox has
// stored, Kafka, and the config.
//
// What enters is a [Case]; what leaves are [Finding]s, each with a level, what was seen, and what to do. Nothing is
// changed, and nothing is read without a bound. A check that can't be made, for want of rights or because a server
// does not answer, says so and stops no other.
//
// Files in reading order: doctor.go, findings.go (as JSON), target.go (what is checked, and what was asked of it
// already), then the checks by what they look at: config.go, server.go, settings.go, sessions.go, schema.go,
// vacuum.go, inbox.go, ids.go, lanes.go, http.go, outbox.go, handlers.go, holds.go, cluster.go, topics.go, group.go, shards.go;
// looks.go, looks_lanes.go, looks_messages.go, looks_http.go and looks_outbox.go have the queries.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/dedup/failure"
)

// Level is a finding's severity.
type Level int

// The levels, from the best to the worst.
const (
	OK      Level = iota // as it should be
	Info                 // worth knowing; nothing has to be done
	Warning              // unsafe, or about to be a fault
	Fault                // it does not work, or messages may be lost or take effect twice
)

var levels = [...]string{"ok", "info", "warning", "fault"}

func (l Level) String() string { return levels[l] }

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is one thing that a check has found.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Checked is false where the check could not be made; Seen says why.
	Checked bool   `json:"checked"`
	Seen    string `json:"seen"`
	// Do says what to do; empty at level ok.
	Do string `json:"do,omitempty"`
}

// Check is one check.
type Check struct {
	// Name is the group and what is looked at, like kafka.lag.
	Name string
	// About says what is looked at, for a list.
	About string
	// Do says what to do about findings, for each level above ok that the check has.
	Do map[Level]string

	needs need
	run   func(ctx context.Context, p *target, r *report) error
}

// Group is the first part of the name.
func (c *Check) Group() string {
	group, _, _ := strings.Cut(c.Name, ".")
	return group
}

// need is something that a check can't do without.
type need uint8

const (
	needsConfig need = 1 << iota
	needsPostgres
	needsSchema // this build's, and with it Postgres
	needsInbox  // and with it the schema
	needsKafka  // and with it the config
)

// Checks lists all checks in the order in which they are made.
func Checks() []Check {
	return slices.Concat(configChecks, serverChecks, settingChecks, sessionChecks, vacuumChecks, schemaChecks,
		inboxChecks, idChecks, laneChecks, httpChecks, outboxChecks, holdChecks, handlerChecks, registryChecks,
		clusterChecks, topicChecks, groupChecks, shardChecks)
}

// Select gives the checks of some names, all of a group where a name is a group's. Without names it gives all.
func Select(names []string) ([]Check, error) {
	all := Checks()
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(c Check) bool { return c.Name == name || c.Group() == name }) {
			return nil, fmt.Errorf("there is no check %q; `firstseen doctor --list` lists them", name)
		}
	}
	return slices.DeleteFunc(all, func(c Check) bool {
		return !slices.Contains(names, c.Name) && !slices.Contains(names, c.Group())
	}), nil
}

// Worst is the level of the worst finding.
func Worst(findings []Finding) (worst Level) {
	for _, f := range findings {
		worst = max(worst, f.Level)
	}
	return worst
}

// Run makes the checks, one after the other, and gives their findings in that order: for each check one at level ok,
// or all that are above. Its error is ctx's end, beside what was found until then.
func Run(ctx context.Context, c Case, checks []Check) ([]Finding, error) {
	p := newTarget(c)
	defer p.close()
	var findings []Finding
	for i := range checks {
		if ctx.Err() != nil {
			return findings, ctx.Err()
		}
		findings = append(findings, p.check(ctx, &checks[i])...)
	}
	return findings, ctx.Err()
}

// Within is Run for who shows what was found until ctx's end: a check that was not made any more says so.
func Within(ctx context.Context, c Case, checks []Check) []Finding {
	findings, err := Run(ctx, c, checks)
	if err == nil {
		return findings
	}
	made := map[string]bool{}
	for i := range findings {
		made[findings[i].Check] = true
	}
	for i := range checks {
		if !made[checks[i].Name] {
			findings = append(findings, Finding{Check: checks[i].Name, Level: Info, Seen: "not checked: the time was over before",
				Do: "Run it by itself: firstseen doctor --only " + checks[i].Name})
		}
	}
	return findings
}

// report gathers what one check sees.
type report struct {
	found []Finding
}

func (r *report) add(level Level, format string, args ...any) {
	r.found = append(r.found, Finding{Level: level, Checked: true, Seen: fmt.Sprintf(format, args...)})
}

func (r *report) ok(format string, args ...any)    { r.add(OK, format, args...) }
func (r *report) info(format string, args ...any)  { r.add(Info, format, args...) }
func (r *report) warn(format string, args ...any)  { r.add(Warning, format, args...) }
func (r *report) fault(format string, args ...any) { r.add(Fault, format, args...) }

// advise adds a finding with an advice of its own.
func (r *report) advise(level Level, do, format string, args ...any) {
	r.add(level, format, args...)
	r.found[len(r.found)-1].Do = do
}

func (r *report) notChecked(why error) {
	r.found = append(r.found, Finding{Level: Info, Seen: "not checked: " + explained(why), Do: advice(why)})
}

// check makes one check within the case's time limit.
func (p *target) check(ctx context.Context, c *Check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	r := &report{}
	err := p.provide(ctx, c.needs)
	if err == nil {
		err = c.run(ctx, p, r)
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errSlow{p.Timeout}
		}
		r.notChecked(err)
	}
	return r.findings(c)
}

// maxFindings caps the findings of one check that are told: a thousand partitions may all have the same fault.
const maxFindings = 30

// findings leaves out what is ok where something is not, all but the first of what is ok, and what is too much.
func (r *report) findings(c *Check) []Finding {
	notOK := slices.DeleteFunc(slices.Clone(r.found), func(f Finding) bool { return f.Level == OK })
	if len(notOK) == 0 && len(r.found) > 0 {
		notOK = r.found[:1]
	}
	if more := notOK[min(maxFindings, len(notOK)):]; len(more) > 0 {
		last := Finding{Level: Worst(more), Checked: true, Seen: fmt.Sprintf("and %d more like these", len(more))}
		notOK = append(notOK[:maxFindings:maxFindings], last)
	}
	for i := range notOK {
		f := &notOK[i]
		f.Check = c.Name
		if f.Checked && f.Do == "" {
			f.Do = c.Do[f.Level]
		}
	}
	return notOK
}

type errSlow struct{ limit time.Duration }

func (e errSlow) Error() string { return fmt.Sprintf("it took longer than %s", e.limit) }

// explained is an error as one line.
func explained(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\t' }), "; ")
}

// advice says what to do about a check that could not be made.
func advice(err error) string {
	var slow errSlow
	switch {
	case errors.As(err, &slow), failure.Of(err) == failure.TooSlow:
		return "Run it again with --only and a longer --timeout."
	case errors.Is(err, errNotShown), failure.Denied(err):
		return "Run it as a role that may see this: a member of firstseen_operator, " +
			"and of pg_monitor for what other sessions do."
	case errors.Is(err, cluster.ErrNotAllowed):
		return "Allow it by an ACL: Describe on the topics and the group, " +
			"DescribeConfigs on the topics and the cluster."
	}
	return ""
}

// errNotShown stands for what Postgres hides from a role.
var errNotShown = errors.New("this role is not shown")
