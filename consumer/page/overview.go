package page

import (
	"cmp"
	"slices"
	"time"

	"github.com/firstseen/firstseen/consumer/service"
	apiview "github.com/firstseen/firstseen/consumer/view"
)

// overviewPage says whether it is well, and whether it keeps up.
type overviewPage struct {
	Verdict    string
	Health     service.Health
	Wrong      []finding // the worst first
	Fine       []service.Check
	Status     apiview.Status
	Span       span
	Plots      []plot
	Topics     []topicRow
	Partitions []apiview.Partition // those that wait most
	More       int                 // others
}

// finding is a check that is not well, and what to do about it.
type finding struct {
	service.Check
	Do   string
	Page string // where to look
}

type topicRow struct {
	apiview.TopicSample
	Plot plot
}

// verdicts are the states of health in words, and how bad they are.
var verdicts = map[string]string{"ok": "All is well", "degraded": "Somebody should look",
	"unhealthy": "Somebody has to act"}

// advice is what to do about a check that is not well, and the page to look at.
var advice = map[string]finding{
	"postgres":             {Do: "See whether Postgres is up and reachable from here. Nothing is lost: it goes on by itself."},
	"kafka":                {Do: "See whether the brokers are up and reachable from here. It goes on by itself."},
	"group":                {Do: "See the holds below, and the program's log: a member that can't join says why."},
	"backlog":              {Do: "See what is waited for: a slow or failing handler, a pause, or too few instances.", Page: "waiting"},
	"oldest_age":           {Do: "See what the oldest messages wait for.", Page: "waiting"},
	"failure_ratio":        {Do: "See which handler fails, and by what.", Page: "waiting"},
	"held":                 {Do: "Each hold below says what it waits for and what to do."},
	"paused":               {Do: "Resume what is to go on.", Page: "pauses"},
	"topics":               {Do: "Create the topic, allow it to this client, or take it out of the config."},
	"dead_letters":         {Do: "See why they were given up; mend that, and redrive them.", Page: "dead"},
	"outbox_backlog":       {Do: "See what keeps the messages from being sent.", Page: "outbox"},
	"outbox_oldest_age":    {Do: "See what keeps the messages from being sent.", Page: "outbox"},
	"outbox_failure_ratio": {Do: "See by what sending fails.", Page: "outbox"},
	"outbox_dead_letters":  {Do: "See why they were given up; mend that, and redrive them.", Page: "outbox"},
}

// maxPartitions caps those that the first page has.
const maxPartitions = 20

func (v *visit) overview() (any, error) {
	var p overviewPage
	var history apiview.History
	var partitions apiview.Partitions
	for _, ask := range []func() error{
		func() error { return v.ask("GET", "/healthz", nil, nil, &p.Health) },
		func() error { return v.get("/status", nil, &p.Status) },
		func() error { return v.get("/history", nil, &history) },
		func() error { return v.get("/partitions", nil, &partitions) },
	} {
		if err := ask(); err != nil {
			return nil, err
		}
	}
	p.judge()
	p.plot(v.now, &history)
	p.rank(partitions.Partitions, v.r.URL.Query().Has("all"))
	return p, nil
}

func (p *overviewPage) judge() {
	p.Verdict = verdicts[p.Health.Status]
	if p.Status.State == string(service.Watching) && p.Health.Status == "ok" {
		p.Verdict = "Nothing wrong is seen in Postgres"
	}
	for _, c := range p.Health.Checks {
		if c.Status == "ok" {
			p.Fine = append(p.Fine, c)
			continue
		}
		f := advice[c.Name]
		f.Check = c
		p.Wrong = append(p.Wrong, f)
	}
	slices.SortStableFunc(p.Wrong, func(a, b finding) int { return -cmp.Compare(a.Status, b.Status) }) // unhealthy first
}

func (p *overviewPage) plot(now time.Time, h *apiview.History) {
	p.Span = spanOf(now.Sub(h.StartedAt))
	grown := func(title, unit string, total func(*apiview.Totals) int64) plot {
		return draw(title, unit, now, p.Span, rates(h, total), perSecond)
	}
	p.Plots = []plot{
		grown("Handled", "messages a second", func(t *apiview.Totals) int64 { return t.Handled }),
		grown("Duplicates", "copies a second", func(t *apiview.Totals) int64 { return t.Duplicates }),
		grown("Failed", "attempts a second", func(t *apiview.Totals) int64 { return t.Failed }),
		draw("Lag", "messages that wait in Kafka", now, p.Span, series(h,
			func(s *apiview.Sample) (float64, bool) { return float64(s.Lag), true }), whole),
		draw("Oldest", "the longest wait in Kafka", now, p.Span, series(h,
			func(s *apiview.Sample) (float64, bool) { return s.Oldest, true }), seconds),
	}
	if len(h.Samples) == 0 {
		return
	}
	for _, t := range h.Samples[len(h.Samples)-1].Topics {
		p.Topics = append(p.Topics, topicRow{t, draw("Lag of "+visible(t.Topic), "messages", now, p.Span,
			series(h, lagOf(t.Topic)), whole)})
	}
}

// lagOf is a topic's lag in a sample.
func lagOf(topic string) func(*apiview.Sample) (float64, bool) {
	return func(s *apiview.Sample) (float64, bool) {
		i := slices.IndexFunc(s.Topics, func(o apiview.TopicSample) bool { return o.Topic == topic })
		if i < 0 {
			return 0, false
		}
		return float64(s.Topics[i].Lag), true
	}
}

// rank has the partitions that are held first, and then those that wait most.
func (p *overviewPage) rank(list []apiview.Partition, all bool) {
	rank := func(at apiview.Partition) int64 {
		switch {
		case at.Held != nil:
			return 1 << 62
		case at.Lag == nil:
			return 0
		}
		return *at.Lag
	}
	slices.SortStableFunc(list, func(a, b apiview.Partition) int { return -cmp.Compare(rank(a), rank(b)) })
	shown := len(list)
	if !all {
		shown = min(shown, maxPartitions)
	}
	p.Partitions, p.More = list[:shown], len(list)-shown
}
