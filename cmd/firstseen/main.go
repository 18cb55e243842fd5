// Command firstseen consumes Kafka topics into Postgres so that each message takes effect once.
//
//	firstseen run       consume, with Postgres functions as handlers
//	firstseen migrate   make, change or look at the schema in Postgres
//	firstseen dead      look at dead letters, redrive and discard them
//	firstseen jobs      look at jobs on many dead letters, and cancel them
//	firstseen config    print the config that takes effect, its schema, or an example
//	firstseen conflicts look at messages that came under a known ID with another content
//	firstseen explain   what became of a message, and why
//	firstseen inbox     look at messages by what has become of them
//	firstseen outbox    look at messages that are sent, redrive, discard and pause
//	firstseen status    where the consumers stand, what waits, and what is paused
//	firstseen pause     pause a topic, a partition or a handler
//	firstseen resume    resume what was paused
//	firstseen rerun     have a handler handle processed messages again
//	firstseen retention look at what is old enough to be deleted, and delete it
//	firstseen size      how much space is taken, and when the disk is full
//	firstseen doctor    find out what is wrong, and what to do
//	firstseen offsets   where the group stands in its topics; move it
//	firstseen replay    read a part of a topic again
//	firstseen ui        serve the operator's page on this machine
//	firstseen crashtest prove handlers: kills and crashes must leave the same rows
//	firstseen dev       a broker and a Postgres to try it on, with nothing to install
//	firstseen version   what this binary is
//
// and, for whoever packages it, completion and man. Each has its --help. Errors are one line on standard error; exit
// codes are 0 for a clean end, 1 for a failure, 2 for wrong usage or a wrong config.
//
// Files: main.go has what all commands share; inspect.go, list.go and show.go what those share that look into an
// inbox; process.go what those share that process messages; confirm.go how what can't be taken back asks. Each command
// is in the file of its name, and in those that begin with it. How things are shown at a terminal is cmd/internal/terminal.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
)

// The exit codes that all subcommands share; 128 and the signal's number are for a second signal.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		report(stderr, err)
	}
	return exitCode(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "firstseen",
		Short: "Consume Kafka topics into Postgres, each message once",
		Long: `firstseen consumes Kafka topics into Postgres so that each message takes effect once: its ID, what the
handlers do and the position in the topic are committed in one transaction.

Each command has its --help. Errors are one line on standard error.

Exit codes:
  0    a clean end
  1    it failed
  2    wrong usage, or a config with faults, all of which are listed
  other codes, where a command has some, are in its help`,
		Example: `  firstseen dev                                # try it, with nothing to install
  firstseen migrate up --config firstseen.yaml # make the schema
  firstseen run --config firstseen.yaml        # consume`,
		SilenceUsage:  true,
		SilenceErrors: true,

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return refuseEmpty(cmd) },

		SuggestionsMinimumDistance: 2,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.Version, _ = builtFrom()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, "%v", err) })
	return parentOf(root, newRun(), newConfig(), newMigrate(), newDead(), newJobs(), newConflicts(), newExplain(),
		newInbox(), newStatus(), newDoctor(), newOffsets(), newPause(), newReplay(), newResume(), newRerun(), newOutbox(),
		newRetention(), newSize(), newCrashtest(), newUI(), newDev(), newVersion(), newMan())
}

type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...) + "; see " + cmd.CommandPath() + " --help"}
}

// refuseEmpty finds a flag that is given without a value, as by a shell's variable that is not set: a filter that
// picks everything, or another database than was meant. A key may be empty; a cursor is at the first page.
func refuseEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "key" && f.Name != "after" {
			err = usage(cmd, "--%s is empty; give it a value, or leave it out", f.Name)
		}
	})
	return err
}

// parentOf makes a command no more than the parent of others: by itself it shows its help.
func parentOf(cmd *cobra.Command, others ...*cobra.Command) *cobra.Command {
	cmd.Args = onlySubcommands
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(others...)
	return cmd
}

// onlySubcommands refuses arguments.
func onlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return usage(cmd, "unknown command %q%s", args[0], hint)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "unexpected argument %q", args[0])
	}
	return nil
}

// codedError ends the program with a code of its own.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var wrongUsage *usageError
	var wrongConfig *config.Error
	var coded *codedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &wrongUsage), errors.As(err, &wrongConfig):
		return exitUsage
	}
	return exitFailure
}

// report writes an error as one line, and a config's faults as one line each.
func report(w io.Writer, err error) {
	text := terminal.Visible(err.Error())
	var wrongConfig *config.Error
	if !errors.As(err, &wrongConfig) {
		text = terminal.OneLine(text)
	}
	_, _ = fmt.Fprintln(w, "firstseen: "+text)
}
