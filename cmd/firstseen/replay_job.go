package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/replay"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// checkJob holds what is of jobs against the rest.
func (r *replayCommand) checkJob(cmd *cobra.Command) error {
	switch {
	case r.job && (r.fresh || r.name != ""):
		return usage(cmd, "--job: each job is a replay of its own, without --name and --fresh")
	case r.job && r.by.Why == "" && !r.dry:
		return usage(cmd, "--why is required with --job: it is kept in the audit")
	case !r.job && r.by.Why != "":
		return usage(cmd, "--why is for --job")
	}
	return nil
}

// makeJob has a process of the group do it.
func (r *replayCommand) makeJob(ctx context.Context, cmd *cobra.Command, reader *replay.Reader, p *handlers.Processor,
	ask replay.Config) error {
	id := uuid.Must(uuid.NewV7())
	ask.Name = id.String()
	plan, err := reader.Plan(ctx, p, ask)
	if err != nil {
		return interrupted(ctx, err, "")
	}
	j, _, err := operate.Of(p.Store()).CreateReplay(ctx, operate.NewReplay{ID: id, Group: ask.Group, Offsets: plan.Total(),
		ReplayAsk: operate.ReplayAsk{Topic: ask.Topic.Name, Handler: ask.Handler, From: ask.From.Fixed().String(),
			To: ask.To.Fixed().String(), Partitions: ask.Partitions, Rate: ask.Rate,
			SkipLost: r.onLoss == string(consumer.Continue)}}, r.by)
	if err != nil {
		return err
	}
	return tellMade(cmd, r.json, j, fmt.Sprintf("%s offsets will be replayed by a process of group %s",
		terminal.Grouped(plan.Total()), terminal.OneLine(ask.Group)))
}
