// Command mutants breaks the code, one small change at a time, and runs the tests that should notice: a change that
// they don't notice has survived, and is either a test that is missing or a line that needs no test. Tools that are
// kept for this, gremlins above all, change Go only, and half of what must be right here is SQL.
//
//	go run ./cmd/mutants [flags] [target ...]
//
// Targets are those of targets.go, all of them by default. A change reaches the compiler as an overlay: no file of the
// tree is touched. What came of each is kept below bin/mutants, by target, so that a run that was ended goes on where
// it was, as long as the target is the same; survivors are tried again. Survivors that need no test are in
// testdata/mutants.txt, each with its reason. Where there are others the exit code is 1.
//
// Files in reading order: main.go, targets.go, change.go, gochanges.go, sqlchanges.go, trial.go, known.go.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

func main() {
	var t trial
	flag.DurationVar(&t.most, "for", time.Hour, "end a target after that `time`; what is left is tried by the next run")
	flag.IntVar(&t.sample, "sample", 0, "try so `many` changes of a target, spread over it (default all)")
	flag.StringVar(&t.only, "only", "", "try the changes whose name has that `text`")
	list := flag.Bool("list", false, "list the changes, and try none")
	flag.Parse()
	if err := run(&t, flag.Args(), *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(t *trial, names []string, list bool) error {
	known, err := readKnown("testdata/mutants.txt")
	if err != nil {
		return err
	}
	unknown := 0
	for _, name := range names {
		if !slices.ContainsFunc(targets, func(g target) bool { return g.path == name }) {
			return fmt.Errorf("%s is no target; see cmd/mutants/targets.go", name)
		}
	}
	for _, g := range targets {
		if len(names) > 0 && !slices.Contains(names, g.path) {
			continue
		}
		changes, err := changesOf(g.path)
		if err != nil {
			return err
		}
		if changes = t.choose(changes); list {
			for _, c := range changes {
				fmt.Println(c.name)
			}
			continue
		}
		survivors, err := t.target(g, changes)
		if err != nil {
			return err
		}
		unknown += known.tell(g.path, changes, survivors)
	}
	if unknown > 0 {
		return fmt.Errorf("%d changes were not noticed: write a test for each, or its reason into testdata/mutants.txt",
			unknown)
	}
	return nil
}
