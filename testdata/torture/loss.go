package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// alone says, in the environment, that a process has a network namespace of its own.
const alone = "TORTURE_ALONE"

// errNoLoss: packets can't be lost here.
var errNoLoss = errors.New("packets can't be lost here")

// inNamespace runs this program again in a network of its own, which has a loopback and nothing else.
func inNamespace(ctx context.Context) (exitCode int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), alone+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute
	if err := ownNetwork(cmd); err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("%w: no network namespace is granted: %w", errNoLoss, err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// losing is a way to lose packets of the loopback.
type losing struct {
	name  string
	begin string // a command, with PERCENT or PARTS of 100,000 in it
	end   string // takes it back
	told  string // a command whose answer has the number of those that were lost
	count *regexp.Regexp
}

// losings are tried in turn. netem delays packets, too. nft, for kernels without it, loses them where they arrive;
// what is delayed then is what has to be sent again.
var losings = []losing{
	{"netem", "tc qdisc add dev lo root netem loss PERCENT% delay 1ms 2ms",
		"tc qdisc del dev lo root", "tc -s qdisc show dev lo", regexp.MustCompile(`dropped (\d+)`)},
	{"nft",
		`nft 'table inet torture { chain arriving { type filter hook input priority 0; iifname lo meta l4proto tcp ` +
			`numgen random mod 100000 < PARTS counter drop; }; }'`,
		"nft delete table inet torture", "nft list ruleset", regexp.MustCompile(`counter packets (\d+)`)},
}

// wayToLose makes the loopback of a new namespace work, and finds the way to lose packets that there is.
func wayToLose(ctx context.Context) (*losing, error) {
	_, err := shell(ctx, "ip link set lo up")
	faults := []error{errNoLoss, err}
	for i := range losings {
		l := &losings[i]
		if err = l.lose(ctx, 1); err == nil {
			_, err = shell(ctx, l.end)
		}
		if err == nil {
			return l, nil
		}
		faults = append(faults, err)
	}
	return nil, errors.Join(faults...)
}

// lose has so many percent of all packets be lost from now on.
func (l *losing) lose(ctx context.Context, percent float64) error {
	by := strings.NewReplacer("PERCENT", strconv.FormatFloat(percent, 'f', -1, 64),
		"PARTS", strconv.Itoa(int(percent*1000)))
	_, err := shell(ctx, by.Replace(l.begin))
	return err
}

// lost counts them; -1 where that is not known.
func (l *losing) lost(ctx context.Context) int {
	if l == nil {
		return 0
	}
	out, err := shell(context.WithoutCancel(ctx), l.told)
	found := l.count.FindStringSubmatch(out)
	if err != nil || found == nil {
		return -1
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

func shell(ctx context.Context, command string) (output string, err error) {
	out, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return string(out), nil
}
