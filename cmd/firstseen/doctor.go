package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/doctor"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
)

// The exit codes of doctor beside those that all subcommands share.
const (
	exitWarning = 4
	exitFault   = 5
)

const doctorLong = `Check what a troubleshooting guide asks a person to check, and say what to do: the config, Postgres and its settings, the
schema, what the inbox has stored, Kafka's topics and the group.

Nothing is changed. Each check reads a bounded amount, within --timeout, so that it can be run on a system under load, and
from a timer. A check that can't be made, for want of rights or because a server does not answer, is reported as not
checked and stops no other. What is known from the config alone, or from Postgres alone, is checked also where Kafka is
away, and the other way round.

A finding has one of the levels

  ok       as it should be; shown with --all
  info     worth knowing; nothing has to be done
  warning  unsafe, or about to be a fault
  fault    it does not work, or messages may be lost or take effect twice

It is given the config of ` + "`firstseen run`" + `: --config, the file that FIRSTSEEN_CONFIG names, ./firstseen.yaml, and the
environment. With --dsn it looks at that database; without any config the checks that need one are left out. The role
firstseen_operator is enough; a member of pg_monitor sees other sessions' transactions too.` + overShards + `

Exit codes:
  0  all is ok, or worth knowing at most
  1  it could not be run, or was ended by a signal
  2  wrong usage
  4  the worst finding is a warning
  5  the worst finding is a fault, a faulty config or a server that does not answer among them`

type doctorCommand struct {
	inspected
	only      []string
	list, all bool
	timeout   time.Duration
}

func newDoctor() *cobra.Command {
	e := &doctorCommand{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong, and what to do",
		Long:  doctorLong,
		Example: `  firstseen doctor --config firstseen.yaml
  firstseen doctor --only kafka --only ids.missing
  firstseen doctor --json | jq '.findings[] | select(.level == "fault")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd) },
	}
	e.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&e.only, "only", nil, "make this `CHECK` only, or this group's; may be given again")
	flags.BoolVar(&e.list, "list", false, "list the checks and end")
	flags.BoolVar(&e.all, "all", false, "show also what is ok")
	flags.DurationVar(&e.timeout, "timeout", 10*time.Second, "how long one check may take")
	return cmd
}

func (e *doctorCommand) run(cmd *cobra.Command) error {
	checks, err := doctor.Select(e.only)
	switch {
	case err != nil:
		return usage(cmd, "--only: %v", err)
	case e.timeout <= 0:
		return usage(cmd, "--timeout must be above 0")
	case e.list:
		return listChecks(cmd.OutOrStdout(), checks, e.json)
	}
	return e.overShards(cmd, e.json, func() error { return e.examine(cmd, checks) })
}

// examine makes the checks.
func (e *doctorCommand) examine(cmd *cobra.Command, checks []doctor.Check) error {
	c, err := e.readCase(cmd)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	findings, err := doctor.Run(ctx, c, checks)
	if err != nil {
		return err
	}
	if err := e.print(cmd.OutOrStdout(), findings); err != nil {
		return err
	}
	return verdictOf(findings)
}

// readCase reads the config as far as there is one. Its faults are findings; a file that can't be read is wrong usage.
func (e *doctorCommand) readCase(cmd *cobra.Command) (doctor.Case, error) {
	c := doctor.Case{DSN: e.dsn, Schema: e.schema, Inbox: e.inbox, Timeout: e.timeout}
	c.ConfigFile = cmp.Or(e.file, os.Getenv(config.FileVariable))
	if c.ConfigFile != "" {
		if _, err := os.Stat(c.ConfigFile); err != nil { //nolint:gosec // the operator says which
			return c, usage(cmd, "config: %v", err)
		}
	} else if _, err := os.Stat(config.DefaultFile); err == nil {
		c.ConfigFile = config.DefaultFile
	}
	cfg, err := config.Load(e.file, e.environ())
	if c.ConfigFile == "" && len(cfg.Kafka.Brokers) == 0 { // nothing that was meant for a whole config
		c.DSN = cmp.Or(e.dsn, cfg.Postgres.DSN.Reveal())
		if c.DSN == "" {
			return c, usage(cmd, "there is nothing to look at: give --config or --dsn")
		}
		return c, nil
	}
	c.Config, c.ConfigErr = &cfg, err
	if e.dsn != "" {
		c.ConfigErr = withoutDSN(err)
	}
	c.DSN = cmp.Or(c.DSN, cfg.Postgres.DSN.Reveal())
	c.Schema = cmp.Or(c.Schema, cfg.Postgres.Schema)
	c.Inbox = cmp.Or(c.Inbox, cfg.Inbox, cfg.Group)
	return c, nil
}

// withoutDSN leaves out the config's faults that a connection string on the command line makes good.
func withoutDSN(err error) error {
	var wrong *config.Error
	if !errors.As(err, &wrong) {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(wrong.Faults), func(f config.Fault) bool {
		return strings.HasPrefix(f.Key,
			"postgres.dsn")
	})
	if len(left) == 0 {
		return nil
	}
	return &config.Error{Source: wrong.Source, Faults: left}
}

func listChecks(out io.Writer, checks []doctor.Check, asJSON bool) error {
	if asJSON {
		return printJSON(out, doctor.ListOf(checks))
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", c.Name, c.About)
	}
	return table.Flush()
}

func (e *doctorCommand) print(out io.Writer, findings []doctor.Finding) error {
	if e.json {
		return printJSON(out, doctor.FindingsOf(findings))
	}
	return printFindings(out, findings, e.all)
}

// printFindings writes the findings by group, what is ok only where it is asked for, and a line that sums up.
func printFindings(out io.Writer, findings []doctor.Finding, all bool) error {
	var b strings.Builder
	counts := map[doctor.Level]int{}
	for _, f := range findings {
		counts[f.Level]++
	}
	group := ""
	for _, f := range together(findings) {
		if f.Level == doctor.OK && !all {
			continue
		}
		if g, _, _ := strings.Cut(f.Check, "."); g != group {
			group = g
			fmt.Fprintf(&b, "%s\n", group)
		}
		fmt.Fprintf(&b, "  %-7s  %s: %s\n", f.Level, f.Check, terminal.OneLine(f.Seen))
		if f.Do != "" {
			fmt.Fprintf(&b, "           -> %s\n", f.Do)
		}
	}
	fmt.Fprintf(&b, "%d ok, %d info, %d warnings, %d faults\n", counts[doctor.OK], counts[doctor.Info],
		counts[doctor.Warning], counts[doctor.Fault])
	_, err := io.WriteString(out, b.String())
	return err
}

// together has the checks of a group that could not be made for the same reason on one line.
func together(findings []doctor.Finding) (lines []doctor.Finding) {
	first := map[string]int{} // group and reason -> line
	for _, f := range findings {
		group, name, _ := strings.Cut(f.Check, ".")
		at, found := first[group+f.Seen]
		switch {
		case f.Checked:
		case found:
			lines[at].Check += ", " + name
			continue
		default:
			first[group+f.Seen] = len(lines)
		}
		lines = append(lines, f)
	}
	return lines
}

// verdictOf is an error where the worst finding has an exit code of its own.
func verdictOf(findings []doctor.Finding) error {
	switch doctor.Worst(findings) {
	case doctor.Fault:
		return &codedError{exitFault, errors.New("there are faults")}
	case doctor.Warning:
		return &codedError{exitWarning, errors.New("there are warnings")}
	}
	return nil
}
