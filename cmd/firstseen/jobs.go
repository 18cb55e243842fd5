package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/operate"
)

const jobsLong = `Look at jobs, pause and cancel them. A job redrives or discards many dead letters, all that a filter picks and that lay there
at a moment, or reruns processed messages, or replays a topic. ` + "`firstseen dead redrive --job`, `firstseen rerun --job`" + `,
` + "`firstseen replay --job`" + ` and the admin API make one; whichever process of the schema runs does it, in parts, and goes on where
another one has ended. A replay is done by a process of its group. One that can't go on, for messages that are not in Kafka any
more say, rests with the error until it is resumed; what it is expected to be of, and what is done, are offsets.

  list    the last made first, until 30 days after their end
  show    how far one is, and what came of it
  pause   have one rest where it is
  resume  have it go on there
  cancel  end one; what it has done stays done

Those of the outbox: list --inbox outbox.` + databaseHelp

func newJobs() *cobra.Command {
	i := &inspected{}
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Look at jobs on many messages, pause and cancel them",
		Long:  jobsLong,
		Example: `  firstseen jobs list
  firstseen jobs cancel 0199f3a2-7c1e-7b62-9d4e-3a5b6c7d8e9f --why "wrong handler"`,
	}
	i.addFlags(cmd)
	return parentOf(cmd, newJobsList(i), newJobsShow(i), newJobsPause(i), newJobsResume(i), newJobsCancel(i))
}

func newJobsList(i *inspected) *cobra.Command {
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, the last made first",
		Long: `List the inbox's jobs, the last made first: how many messages each was expected to be of when it was made, how many
are done, were skipped (without a message ID, or taken by somebody else) and have failed.

Exit codes: 0 listed, even if there are none, 1 it failed, 2 wrong usage or config.`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.check(cmd); err != nil {
			return err
		}
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			found, next, err := s.Jobs(ctx, operate.Cursor(p.after), p.limit)
			switch {
			case err != nil:
				return err
			case i.json:
				return printJSON(cmd.OutOrStdout(), view.JobsOf(found, next, nil))
			}
			return jobLister.print(cmd, s.Name(), found, next)
		})
	}
	p.addFlags(cmd)
	return cmd
}

var jobLister = lister[operate.Job]{what: "jobs",
	columns: []string{"MADE (UTC)", "ID", "KIND", "STATE", "EXPECTED", "DONE", "SKIPPED", "FAILED", "BY", "WHY"},
	row: func(j *operate.Job) []string {
		return []string{j.CreatedAt.UTC().Format(time.DateTime), j.ID.String(), string(j.Kind), string(j.State),
			expected(j.Expected, j.More), terminal.Grouped(j.Done), terminal.Grouped(j.Skipped), terminal.Grouped(j.Failed),
			terminal.Brief(j.By.Actor, 40), terminal.Brief(j.By.Why, 70)}
	}}

// expected is a count that may not be all.
func expected(n int, more bool) string {
	if more {
		return "at least " + terminal.Grouped(int64(n))
	}
	return terminal.Grouped(int64(n))
}

func newJobsShow(i *inspected) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show how far a job is, and what came of it",
		Long: `Show a job, of whichever inbox.

Exit codes: 0 shown, 1 it failed or there is none, 2 wrong usage or config.`,
		Args: oneArg("ID"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return i.withJob(cmd, args[0], func(ctx context.Context, s *operate.Inbox, id uuid.UUID) (*operate.Job, error) {
			return s.Job(ctx, id)
		})
	}
	return cmd
}

func newJobsPause(i *inspected) *cobra.Command {
	return newJobsChange(i, &cobra.Command{
		Use:   "pause ID --why TEXT",
		Short: "Have a job rest where it is",
		Long: `Have a job rest, of whichever inbox, until it is resumed, and show it: between two of its parts, so it may take some
seconds. One that has ended stays as it is.

What was done is kept in the table audit, with --why and --actor.

Exit codes: 0 paused, or ended before, 1 it failed or there is none, 2 wrong usage or config.`}, (*operate.Inbox).PauseJob)
}

func newJobsResume(i *inspected) *cobra.Command {
	return newJobsChange(i, &cobra.Command{
		Use:   "resume ID --why TEXT",
		Short: "Have a job go on that rests",
		Long: `Have a job that rests go on where it was, by whichever process runs, and show it. Another one stays as it is.

What was done is kept in the table audit, with --why and --actor.

Exit codes: 0 resumed, or it did not rest, 1 it failed or there is none, 2 wrong usage or config.`}, (*operate.Inbox).ResumeJob)
}

func newJobsCancel(i *inspected) *cobra.Command {
	return newJobsChange(i, &cobra.Command{
		Use:   "cancel ID --why TEXT",
		Short: "End a job; what it has done stays done",
		Long: `End a job, of whichever inbox, and show it: between two of its parts, so it may take some seconds. One that has ended
stays as it is.

What was done is kept in the table audit, with --why and --actor.

Exit codes: 0 cancelled, or ended before, 1 it failed or there is none, 2 wrong usage or config.`}, (*operate.Inbox).CancelJob)
}

func newJobsChange(i *inspected, cmd *cobra.Command,
	do func(*operate.Inbox, context.Context, uuid.UUID, operate.By) (*operate.Job, bool, error)) *cobra.Command {
	var by operate.By
	cmd.Args = oneArg("ID")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if by.Why == "" {
			return usage(cmd, "--why is required: it is kept for those who come after")
		}
		return i.withJob(cmd, args[0], func(ctx context.Context, s *operate.Inbox, id uuid.UUID) (*operate.Job, error) {
			j, _, err := do(s, ctx, id, by)
			return j, err
		})
	}
	cmd.Flags().StringVar(&by.Why, "why", "", "`text` for those who come after; required")
	cmd.Flags().StringVar(&by.Actor, "actor", actor(), "`name` of who does it")
	return cmd
}

// withJob shows the job that do gives, whichever inbox it is of.
func (i *inspected) withJob(cmd *cobra.Command, text string,
	do func(context.Context, *operate.Inbox, uuid.UUID) (*operate.Job, error)) error {
	id, err := uuid.Parse(text)
	if err != nil {
		return usage(cmd, "%q is not the ID of a job; `firstseen jobs list` lists them", text)
	}
	i.anyInbox = true
	return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
		j, err := do(ctx, s, id)
		switch {
		case err != nil:
			return err
		case j == nil:
			return fmt.Errorf("there is no job %s: there was none, or it ended more than 30 days ago", id)
		case i.json:
			return printJSON(cmd.OutOrStdout(), view.JobOf(j, nil))
		}
		return printJob(cmd.OutOrStdout(), j)
	})
}

func printJob(out io.Writer, j *operate.Job) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"job", j.ID.String()}, {"inbox", terminal.OneLine(j.Inbox)}, {"kind", string(j.Kind)}, {"state", string(j.State)},
		{"of", terminal.OneLine(jobText(j))}, {"fixed at", view.Clock(j.FixedAt)},
		{"expected", expected(j.Expected, j.More) + unitOf(j)},
		{"done", terminal.Grouped(j.Done)}, {"skipped", terminal.Grouped(j.Skipped)}, {"failed", terminal.Grouped(j.Failed)},
		{"error", terminal.OneLine(j.Error)}, {"made", view.Clock(j.CreatedAt)}, {"by", terminal.OneLine(j.By.Actor)},
		{"why", terminal.OneLine(j.By.Why)}, {"worked on", view.Clock(j.WorkedAt)}, {"worker", terminal.OneLine(j.Worker)},
		{"finished", view.Clock(j.FinishedAt)}, {"messages", replayedText(j.Replay)},
	} {
		if line[1] != "" {
			_, _ = fmt.Fprintf(table, "%s\t%s\n", line[0], line[1])
		}
	}
	return table.Flush()
}

// unitOf is what a job counts, where that is no messages.
func unitOf(j *operate.Job) string {
	if j.Replay != nil {
		return " offsets"
	}
	return ""
}

// replayedText is what became of a replay's messages; empty: it is none.
func replayedText(r *operate.ReplayJob) string {
	if r == nil {
		return ""
	}
	c, n := &r.Counts, terminal.Grouped
	return fmt.Sprintf("%s new, %s duplicates, %s conflicts, %s parked, %s dead, %s buried", n(c.New), n(c.Duplicates), n(c.Conflicts),
		n(c.Parked), n(c.Dead), n(c.Buried))
}

// jobText says what a job is of.
func jobText(j *operate.Job) string {
	text := filterText(&j.Filter)
	if r := j.Replay; r != nil {
		text += fmt.Sprintf(", from %s to %s", r.From, r.To)
		if len(r.Partitions) > 0 {
			text += ", partitions " + strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Partitions), " ", ","), "[]")
		}
		if r.Rate > 0 {
			text += fmt.Sprintf(", at most %d messages a second", r.Rate)
		}
		if r.SkipLost {
			text += ", without those that are gone"
		}
	}
	if p := j.Places; p != nil {
		text += fmt.Sprintf(", partition %d from offset %d", p.Partition, p.From)
		if p.To > 0 {
			text += fmt.Sprintf(" to before %d", p.To)
		}
	}
	return text
}

// filterText says what a filter picks, as its flags do.
func filterText(f *operate.Filter) string {
	var parts []string
	for _, p := range [][2]string{{"topic", f.Topic}, {"handler", f.Handler}, {"tenant", f.Tenant}, {"reason", f.Reason},
		{"since", view.Clock(f.From)}, {"until", view.Clock(f.To)}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	if f.Key != nil {
		parts = append(parts, "key "+terminal.Inline(f.Key))
	}
	if f.IDs != nil {
		parts = append(parts, terminal.Count(len(f.IDs), "message ID"))
	}
	if parts == nil {
		return "all dead letters"
	}
	return strings.Join(parts, ", ")
}

// makeJob has whichever process runs do a change to the dead letters that it counts, or only counts them.
func (i *inspected) makeJob(ctx context.Context, cmd *cobra.Command, s *operate.Inbox, c change, f operate.Filter,
	asked changeAsked) error {
	kind := operate.JobKind(c.verb)
	p, err := s.PreviewJob(ctx, kind, f, "")
	switch {
	case err != nil:
		return err
	case p.Messages == 0 && !p.More:
		return errors.New("no dead letter matches: nothing to " + c.verb)
	case asked.dry && i.json:
		return printJSON(cmd.OutOrStdout(), view.JobPreviewOf(kind, f, p, nil))
	case asked.dry:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s would be %s\n", previewed(p), c.done)
		return err
	case c.will != "":
		if err := asked.confirm.ask(cmd, int64(p.Messages), previewed(p)+" will "+c.will); err != nil {
			return err
		}
	}
	j, _, err := s.CreateJob(ctx, operate.NewJob{ID: uuid.Must(uuid.NewV7()), Kind: kind, Filter: f, Moment: p.Moment}, asked.by)
	if err != nil {
		return err
	}
	return tellMade(cmd, i.json, j, previewed(p)+" will be "+c.done+byWhichever)
}

const byWhichever = " by whichever process runs"

// tellMade shows a job that was made, as JSON, or says what will be done.
func tellMade(cmd *cobra.Command, json bool, j *operate.Job, will string) error {
	if json {
		return printJSON(cmd.OutOrStdout(), view.JobOf(j, nil))
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s; see firstseen jobs show %s\n", will, j.ID)
	return err
}

func previewed(p operate.JobPreview) string {
	if p.More {
		return expected(p.Messages, true) + " dead letters"
	}
	return terminal.Count(p.Messages, "dead letter")
}
