package page

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	apiview "github.com/firstseen/firstseen/consumer/view"
)

// processesPage says where the consumers of all processes stand.
type processesPage struct {
	Consumers []standing
	Holds     []apiview.ToldHolds // of processes that hold something, or are gone
	More      bool
}

// standing is a consumer's, or a replay's, in one topic.
type standing struct {
	Consumer, Topic string
	Partitions      int
	Unowned         int        // of these
	Owners          []string   // who acquired them last
	MovedAt         *time.Time // the last of them
	Fruitless       int        // acquisitions of one of them since it moved
	Left            int64      // of a replay
	Job             string     // whose replay it is; empty: that of a command
}

func (v *visit) processes() (any, error) {
	found, err := v.positions()
	p := processesPage{Consumers: standings(found.Positions, false), More: found.More}
	for _, told := range found.Holds {
		if told.Stale || len(told.Holds) > 0 {
			p.Holds = append(p.Holds, told)
		}
	}
	return p, err
}

// replaysPage lists replays.
type replaysPage struct {
	Replays []standing
	More    bool
}

func (v *visit) replays() (any, error) {
	found, err := v.positions()
	return replaysPage{standings(found.Positions, true), found.More}, err
}

func (v *visit) positions() (found apiview.Positions, err error) {
	return found, v.get("/positions", nil, &found)
}

// standings puts the positions of one topic together: those of replays, or the others.
func standings(positions []apiview.Position, replays bool) (out []standing) {
	for i := range positions {
		p := &positions[i]
		if (p.ReplayTo != nil) != replays {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Consumer != p.Consumer || out[n-1].Topic != p.Topic {
			out = append(out, standing{Consumer: p.Consumer, Topic: p.Topic, Job: jobOf(p)})
		}
		out[len(out)-1].add(p)
	}
	return out
}

func (s *standing) add(p *apiview.Position) {
	s.Partitions++
	s.Fruitless = max(s.Fruitless, p.Fruitless)
	if p.MovedAt != nil && (s.MovedAt == nil || p.MovedAt.After(*s.MovedAt)) {
		s.MovedAt = p.MovedAt
	}
	if p.ReplayTo != nil && p.Next != nil {
		s.Left += max(0, *p.ReplayTo-*p.Next)
	}
	if p.Owner == nil {
		s.Unowned++
		return
	}
	if !slices.Contains(s.Owners, *p.Owner) {
		s.Owners = append(s.Owners, *p.Owner)
	}
}

// jobOf is the job whose replay's position it is: its ID is the replay's name.
func jobOf(p *apiview.Position) string {
	name := p.Consumer[strings.LastIndexByte(p.Consumer, '/')+1:]
	if _, err := uuid.Parse(name); err != nil || p.ReplayTo == nil {
		return ""
	}
	return name
}
