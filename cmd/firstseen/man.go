package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Print the manual page of all commands",
		Long:   "Print the manual page of all commands, for whoever packages the program: the texts of their help, as roff.",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var page strings.Builder
			writeManual(&page, cmd.Root())
			_, err := io.WriteString(cmd.OutOrStdout(), page.String())
			return err
		},
	}
}

// writeManual writes the page without a date or a version, so that it is the same bytes whenever it is made.
func writeManual(page *strings.Builder, root *cobra.Command) {
	fmt.Fprintf(page, `.TH %s 1 "" "%s" "User Commands"
.nr HY 0
.ad l
.SH NAME
%s \- %s
.SH SYNOPSIS
.B %s
.I command
[options]
.SH DESCRIPTION
%s
.SH COMMANDS
`, strings.ToUpper(root.Name()), root.Name(), root.Name(), roff(root.Short), root.Name(), roff(root.Long))
	for _, cmd := range root.Commands() {
		writeCommand(page, cmd)
	}
	fmt.Fprintf(page, ".SH EXAMPLES\n.EX\n%s\n.EE\n", roff(root.Example))
	page.WriteString(".SH SEE ALSO\nhttps://github.com/firstseen/firstseen\n")
}

// writeCommand writes what a command's help says, and what those of its subcommands say.
func writeCommand(page *strings.Builder, cmd *cobra.Command) {
	if !cmd.IsAvailableCommand() {
		return
	}
	fmt.Fprintf(page, ".SS \"%s\"\n%s\n", roff(cmd.UseLine()), roff(cmd.Long))
	const columns = 76
	if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(page, ".PP\n.EX\n%s\n.EE\n", roff(flags.FlagUsagesWrapped(columns)))
	}
	if cmd.Example != "" {
		fmt.Fprintf(page, ".PP\n.EX\n%s\n.EE\n", roff(cmd.Example))
	}
	for _, sub := range cmd.Commands() {
		writeCommand(page, sub)
	}
}

// roff escapes a text. Lines that begin with a space are kept apart by roff itself, and empty ones part paragraphs.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`).Replace(strings.TrimRight(text, "\n"))
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
