package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// job tells a contender, a process of its own, what to do: it gets it on standard input, consumes the topic as a
// member of the group until that many messages are through, and answers with an outcome on standard output.
type job struct {
	Brokers    []string `json:"brokers"`
	Topic      string   `json:"topic"`
	Group      string   `json:"group"`
	DSN        string   `json:"dsn"`
	Messages   int      `json:"messages"`
	Partitions int      `json:"partitions"`

	// What follows is for firstseen itself.

	Handler      string        `json:"handler,omitempty"` // a name of workloads
	Inbox        string        `json:"inbox,omitempty"`   // default the group
	Transactions int           `json:"transactions,omitempty"`
	BufferBytes  int           `json:"buffer_bytes,omitempty"`
	Unlimited    bool          `json:"unlimited,omitempty"` // Go's heap is; else it has the limit of `firstseen run`
	Wait         time.Duration `json:"wait,omitempty"`      // of the handler that waits
	Heartbeat    time.Duration `json:"heartbeat,omitempty"`
	URL          string        `json:"url,omitempty"`     // of a webhook
	Service      string        `json:"service,omitempty"` // a name of services: it answers HTTP requests instead
}

// outcome is a contender's answer.
type outcome struct {
	Seconds  float64 `json:"seconds"` // from before its first client until the last commit
	Messages int     `json:"messages"`
	// Of firstseen alone: what the consumer allocated, and the most memory that the process has had.
	Allocations uint64 `json:"allocations,omitempty"`
	PeakBytes   int64  `json:"peak_bytes,omitempty"`
	// Failed are tries of messages that failed, and Dead messages that were given up.
	Failed int `json:"failed,omitempty"`
	Dead   int `json:"dead,omitempty"`
	// Also of firstseen alone: when the first messages were through and the job's partitions acquired, and how many
	// messages that were.
	FirstSeconds  float64 `json:"first_seconds,omitempty"`
	FirstMessages int     `json:"first_messages,omitempty"`
}

func (o outcome) rate() float64 { return float64(o.Messages) / o.Seconds }

// steady is the rate without the start: from when messages were through and all partitions acquired.
func (o outcome) steady() float64 {
	if o.FirstMessages >= o.Messages {
		return o.rate()
	}
	return float64(o.Messages-o.FirstMessages) / (o.Seconds - o.FirstSeconds)
}

// contenderLimit ends a contender that has got stuck.
const contenderLimit = 10 * time.Minute

// contend runs a contender to its end. The name of firstseen's own is empty, others are peers'.
func (l *lab) contend(ctx context.Context, name string, j job) (o outcome, err error) {
	program, args, err := l.program(ctx, name)
	if err != nil {
		return o, err
	}
	ctx, cancel := context.WithTimeout(ctx, contenderLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGKILL) }
	input, err := json.Marshal(j)
	if err != nil {
		return o, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = bytes.NewReader(input), &stdout, &stderr, withoutGo(os.Environ())
	if err := cmd.Run(); err != nil {
		return o, fmt.Errorf("%w: %s", errors.Join(err, context.Cause(ctx)), lastLines(stderr.Bytes()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &o); err != nil {
		return o, fmt.Errorf("read its answer %q: %w", stdout.Bytes(), err)
	}
	return o, nil
}

// withoutGo is an environment in which Go's collector is as in a program that nobody has set anything for.
func withoutGo(environ []string) []string {
	return slices.DeleteFunc(environ, func(v string) bool {
		return strings.HasPrefix(v, "GOMEMLIMIT=") || strings.HasPrefix(v, "GOGC=")
	})
}

// together has n instances of firstseen do a job, and runs f beside them. What fails first ends all, and is the error.
func (l *lab) together(ctx context.Context, n int, j job, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var instances sync.WaitGroup
	for range n {
		instances.Go(func() {
			if _, err := l.contend(ctx, "", j); err != nil {
				cancel(err)
			}
		})
	}
	if err := f(ctx); err != nil {
		cancel(err)
	}
	instances.Wait()
	return context.Cause(ctx)
}

// firstseen has firstseen do a job on a topic that is there, and checks what it left in its inbox.
func (l *lab) firstseen(ctx context.Context, d *database, j job) (outcome, error) {
	j, err := l.on(ctx, d, j)
	if err != nil {
		return outcome{}, err
	}
	o, err := l.contend(ctx, "", j)
	if err != nil {
		return o, err
	}
	return o, d.expectInbox(ctx, cmp.Or(j.Inbox, j.Group), j.Messages)
}

// on is a job on the lab's servers.
func (l *lab) on(ctx context.Context, d *database, j job) (_ job, err error) {
	j.Brokers, err = l.brokers(ctx)
	j.DSN = d.dsn
	return j, err
}

// jobFor is a job with a workload over a new topic, to which no effects have been written yet.
func (l *lab) jobFor(ctx context.Context, d *database, workload string, spec topicSpec) (j job, err error) {
	if err := d.empty(ctx); err != nil {
		return j, err
	}
	topic, err := l.topic(ctx, spec)
	if err != nil {
		return j, err
	}
	return l.on(ctx, d, job{Topic: topic, Group: topic, Handler: workload, Messages: spec.messages,
		Partitions: partitions})
}

// program is the command line of a contender.
func (l *lab) program(ctx context.Context, name string) (program string, args []string, err error) {
	if name == "" {
		program, err = os.Executable()
		return program, []string{"contender"}, err
	}
	if l.peers == "" {
		if l.peers, err = buildPeers(ctx, l.options.Peers); err != nil {
			return "", nil, err
		}
	}
	return l.peers, []string{name}, nil
}

// hasPeers says whether peers can take part, and tells people where they can't.
func (l *lab) hasPeers() bool {
	if _, err := os.Stat(filepath.Join(l.options.Peers, "go.mod")); l.options.Peers == "" || err != nil {
		l.say("  the peers' module is not at %q: their cases are left out (see --peers)", l.options.Peers)
		return false
	}
	return true
}

func buildPeers(ctx context.Context, dir string) (string, error) {
	f, err := os.CreateTemp("", "firstseen-peers-*")
	if err != nil {
		return "", err
	}
	_ = f.Close()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", f.Name(), ".")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("build the peers in %s: %w: %s", dir, err, lastLines(text))
	}
	return f.Name(), nil
}

func lastLines(text []byte) []byte {
	const most = 2000
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return bytes.TrimSpace(text)
}
