// Command mutants breaks the code, one small change at a time, and runs the tests that should notice: a change that
// they don't notice has survived, and is either a test that is missing or a line that needs no test. Tools that are
// kept for this, gremlins above all, change Go only, and half of what must be right here is SQL.
//
//	go run ./cmd/mutants [flags] [target ...]
//
// Targets are those of targets.go, all of them by default. First each test is run alone, to learn what code it runs
// and how long it takes; then a change meets only the tests that run it, the quickest first, until one fails. Go
// reaches the compiler as an overlay, all changes of a file at once, of which a variable of the environment chooses
// one; SQL is read at run time. No file of the tree is touched. What was learnt and what came of each change is kept
// below bin/mutants, so that a run that was ended goes on where it was, as long as the code is the same. Survivors
// that need no test are in testdata/mutants.txt, each with its reason. Where there are others the exit code is 1.
//
// Files in reading order: main.go, targets.go, change.go, gochanges.go, sqlchanges.go, together.go, lesson.go,
// trial.go, server.go, results.go, known.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	var t trial
	most := flag.Duration("for", time.Hour, "end after that `time`; what is left is tried by the next run")
	beside := flag.Int("beside", 2, "try so `many` changes at a time")
	flag.IntVar(&t.sample, "sample", 0, "try so `many` changes of a target, spread over it (default all)")
	flag.StringVar(&t.only, "only", "", "try the changes whose name has that `text`")
	list := flag.Bool("list", false, "list the changes, and try none")
	flag.Parse()
	t.end = time.Now().Add(*most)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &t, flag.Args(), *beside, *list); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, t *trial, names []string, beside int, list bool) error {
	known, err := readKnown("testdata/mutants.txt")
	if err != nil {
		return err
	}
	chosen, err := chooseTargets(names)
	if err != nil {
		return err
	}
	if !list {
		servers, stop, err := startServers(ctx, beside)
		if err != nil {
			return err
		}
		defer stop()
		t.servers = servers
		if err := os.MkdirAll(filepath.Dir(kept("x")), 0o750); err != nil {
			return err
		}
	}
	unknown := 0
	for _, g := range chosen {
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
		survivors, noticed, err := t.target(ctx, g, changes)
		if err != nil {
			return err
		}
		unknown += tell(known, g.path, survivors, noticed)
	}
	if unknown > 0 {
		return fmt.Errorf("%d changes were not noticed: write a test for each, "+
			"or its reason into testdata/mutants.txt", unknown)
	}
	return nil
}

func chooseTargets(names []string) (chosen []target, err error) {
	if len(names) == 0 {
		return targets, nil
	}
	for _, name := range names {
		at := slices.IndexFunc(targets, func(g target) bool { return g.path == name })
		if at < 0 {
			return nil, fmt.Errorf("%s is no target; see cmd/mutants/targets.go", name)
		}
		chosen = append(chosen, targets[at])
	}
	return chosen, nil
}

// tell prints the survivors that have no reason, and the reasons that are none any more.
func tell(known reasons, path string, survivors, noticed []string) (unknown int) {
	for _, name := range known.needless(noticed) {
		fmt.Printf("%s: a test notices what needs none by its reason: %s\n", path, name)
	}
	names := known.unknown(survivors)
	for _, name := range names {
		fmt.Println("SURVIVED", name)
	}
	return len(names)
}
