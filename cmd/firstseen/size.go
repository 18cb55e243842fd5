package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/migrations"
)

const sizeLong = `Say how much space firstseen takes in Postgres, what a day adds, and which scopes the message IDs are of: all inboxes of
the schema together.

Rows are estimates from Postgres' statistics; bytes are exact, with indexes and TOAST. A day's growth is the mean of the
inbox's last whole days, up to seven. Where the config says how large the disk is (postgres.capacity), it is said when that
will be full; retention.ids and retention.inbox of the config are taken into account, the WAL is not.

Nothing is scanned: it may be asked at any time.` + databaseHelp + `

Exit codes: 0 told, 1 it failed, 2 wrong usage or config.`

func newSize() *cobra.Command {
	i := &inspected{}
	cmd := &cobra.Command{
		Use:   "size",
		Short: "Say how much space is taken, what a day adds, and when the disk is full",
		Long:  sizeLong,
		Example: `  firstseen size
  firstseen size --json | jq .full_in_days`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _ := config.Load(i.file, i.environ()) // other sections may have faults: they don't matter here
		cfg.Postgres.Schema = cmp.Or(i.schema, cfg.Postgres.Schema, migrations.DefaultSchema)
		return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
			size, err := s.Size(ctx)
			if err != nil {
				return err
			}
			if i.json {
				return printJSON(cmd.OutOrStdout(), view.SizeOf(&size, int64(cfg.Postgres.Capacity), cfg.Retention.IDs,
					cfg.Retention.Inbox))
			}
			return printSize(cmd.OutOrStdout(), &size, cfg)
		})
	}
	i.addFlags(cmd)
	return cmd
}

func printSize(out io.Writer, s *operate.Size, cfg config.Config) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "TABLE\tROWS (ESTIMATED)\tBYTES\tA DAY")
	var total int64
	for _, t := range s.Tables {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", t.Name, terminal.Grouped(t.Rows),
			terminal.Bytes(t.Bytes), aDay(s, t.Name))
		total += t.Bytes
	}
	_, _ = fmt.Fprintf(table, "all\t\t%s\t%s\n\n", terminal.Bytes(total), aDay(s, "all"))
	if err := table.Flush(); err != nil {
		return err
	}
	facts := [][2]string{{"growth", growthText(s)}, {"disk", diskText(s, cfg)}, {"inbox", daysText(s)},
		{"index", indexText(s, cfg.Postgres.Schema)}}
	for _, f := range facts {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", f[0], f[1])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return printScopes(out, table, s)
}

func printScopes(out io.Writer, table *tabwriter.Writer, s *operate.Size) error {
	if len(s.Scopes) == 0 {
		return nil
	}
	_, _ = fmt.Fprintln(out)
	_, _ = fmt.Fprintln(table, "INBOX\tHANDLER\tTENANT\tIDS (ESTIMATED)\tSHARE")
	const shown = 20
	for _, f := range s.Scopes[:min(shown, len(s.Scopes))] {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.1f %%\n", terminal.Brief(f.Inbox, 40),
			terminal.Brief(f.Handler, 40), terminal.Brief(f.Tenant, 40), terminal.Grouped(f.Rows), 100*f.Share)
	}
	if err := table.Flush(); err != nil || len(s.Scopes) <= shown {
		return err
	}
	_, err := fmt.Fprintf(out, "and %d smaller ones: see --json\n", len(s.Scopes)-shown)
	return err
}

func aDay(s *operate.Size, table string) string {
	n := map[string]int64{"message_dedup": s.Growth.IDBytes, "inbox": s.Growth.InboxBytes,
		"all": s.Growth.IDBytes + s.Growth.InboxBytes}[table]
	if n == 0 {
		return ""
	}
	return terminal.Bytes(n)
}

func growthText(s *operate.Size) string {
	g := s.Growth
	if g.From.IsZero() {
		return "not known yet: the inbox holds no whole day, and less than an hour of this one"
	}
	return fmt.Sprintf("%s IDs a day, one for each handler of a message: the mean of %s to %s UTC",
		terminal.Grouped(g.IDs), g.From.UTC().Format("2006-01-02 15:04"), g.To.UTC().Format("2006-01-02 15:04"))
}

func diskText(s *operate.Size, cfg config.Config) string {
	const what = " taken by all databases of this server"
	capacity := int64(cfg.Postgres.Capacity)
	if capacity == 0 {
		return terminal.Bytes(s.Used) + what +
			"; with postgres.capacity in the config it is said when the disk is full"
	}
	text := terminal.Bytes(s.Used) + " of " + terminal.Bytes(capacity) + what
	days, ok := s.FullIn(capacity, cfg.Retention.IDs, cfg.Retention.Inbox)
	switch {
	case ok && days < 1:
		return text + ": full within a day"
	case ok:
		return text + ": full in " + terminal.Count(int(days), "day") + " at this growth"
	case s.Growth.From.IsZero():
		return text
	}
	return text + ": not full at this growth and retention"
}

func daysText(s *operate.Size) string {
	if s.FirstDay.IsZero() {
		return "holds no messages"
	}
	return "holds messages of " + s.FirstDay.Format(time.DateOnly) + " to " + s.LastDay.Format(time.DateOnly)
}

func indexText(s *operate.Size, schema string) string {
	i := s.IDIndex
	if i.Bloat() == 0 {
		return "of the IDs: empty"
	}
	text := fmt.Sprintf("of the IDs: %s, %.1f times a fresh one", terminal.Bytes(i.Bytes), i.Bloat())
	if !view.WorthRebuilding(i) {
		return text + ": nothing to do"
	}
	return text + ": rebuild it when there is little to do, `reindex index concurrently " +
		schema + ".message_dedup_pkey`"
}
