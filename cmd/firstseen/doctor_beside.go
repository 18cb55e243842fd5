package main

import (
	"cmp"
	"context"
	"time"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/doctor"
	"github.com/firstseen/firstseen/consumer/view"
)

// checkTimeout is the time of one check in a process that has other things to do.
const checkTimeout = 5 * time.Second

// examiner is the doctor of a service: all checks, of what is then the case, over connections of their own, one at a
// time.
func examiner(of func() doctor.Case) func(context.Context) ([]view.Finding, error) {
	return func(ctx context.Context) ([]view.Finding, error) {
		return findingsOf(doctor.Within(ctx, of(), doctor.Checks())), nil
	}
}

// caseOf is that of a program that runs by a config.
func caseOf(live *config.Live) doctor.Case {
	cfg := live.Load()
	return doctor.Case{Config: &cfg, ConfigFile: live.File(), DSN: cfg.Postgres.DSN.Reveal(), Schema: cfg.Postgres.Schema,
		Inbox: cmp.Or(cfg.Inbox, cfg.Group), Timeout: checkTimeout}
}

func findingsOf(found []doctor.Finding) []view.Finding {
	return view.List(found, func(f *doctor.Finding) view.Finding {
		return view.Finding{Check: f.Check, Level: f.Level.String(), Checked: f.Checked, Seen: f.Seen, Do: f.Do}
	})
}
