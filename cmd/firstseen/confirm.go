package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// confirmation is how a command that can't be taken back asks: for --yes, or at a terminal for the number of what is
// concerned, typed.
type confirmation struct{ yes bool }

const confirmHelp = `

It asks before it does that: give --yes, or type at a terminal how many they are.`

func (c *confirmation) addFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do it; without, it is asked at a terminal, and refused elsewhere")
}

// ask is nil where it is to be done. what says what will be: "3 dead letters will be forgotten for good".
func (c *confirmation) ask(cmd *cobra.Command, n int64, what string) error {
	if c.yes {
		return nil
	}
	in := cmd.InOrStdin()
	if file, ok := in.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return usage(cmd, "%s: give --yes if that is meant", what)
	}
	return askFor(in, cmd.ErrOrStderr(), n, what)
}

var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// askFor has the number typed.
func askFor(in io.Reader, out io.Writer, n int64, what string) error {
	if _, err := fmt.Fprintf(out, "%s. Type %d to do it: ", what, n); err != nil {
		return err
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(line) != strconv.FormatInt(n, 10) {
		return errNotConfirmed
	}
	return nil
}
