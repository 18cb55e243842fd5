// Command peers plays what people run instead of firstseen, for its benchmark: one consumer of a Kafka topic
// that has each message take effect once in Postgres.
//
//	peers NAME <job.json
//
// It reads one job from stdin, joins the job's group, handles the topic from its start until as many messages as the
// job says have committed in Postgres and their offsets in Kafka, and prints
//
//	{"seconds":1.234,"messages":60000}
//
// The seconds run from before the first client is made until the last message's transaction has committed. Errors
// and the clients' logs go to stderr; the exit code is then 1, as it is after ten minutes.
//
// The fetch peers have neither a group nor Postgres: they show what a client can read at most. Services have no topic:
// they answer HTTP requests, print {"address":"127.0.0.1:1234"}, and end where stdin does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"
)

// limit ends a run that hangs.
const limit = 10 * time.Minute

// peer handles a job's messages, notes each in progress, and gives back when it has let go of all its clients.
type peer func(context.Context, job, *progress) error

var peers = map[string]peer{
	"byhand":          byHand,
	"byhand-tuned":    byHandTuned,
	"watermill":       withWatermill,
	"expert":          expert(1, copyEffects),
	"expert-queued":   expert(1, queueEffects),
	"expert-inbox":    expert(1, copyInboxAndEffects),
	"expert-parallel": expert(4, copyEffects),
	"fetch-kafkago":   fetchKafkaGo,
	"fetch-franz":     fetchFranz,
	"relay-byhand":    relayByHand,
	"relay-watermill": relayByWatermill,
}

type result struct {
	Seconds  float64 `json:"seconds"`
	Messages int     `json:"messages"`
}

func main() {
	time.AfterFunc(limit, func() { fail(fmt.Errorf("not done after %s", limit)) })
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "peers:", err)
	os.Exit(1)
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 1 && services[args[0]] != nil {
		return serve(context.Background(), services[args[0]], in, out)
	}
	if len(args) != 1 || peers[args[0]] == nil {
		return fmt.Errorf("usage: peers NAME <job.json, with NAME one of %q or %q", slices.Sorted(maps.Keys(peers)),
			slices.Sorted(maps.Keys(services)))
	}
	j, err := readJob(in)
	if err != nil {
		return err
	}
	p := startProgress(j.Messages)
	if err := peers[args[0]](context.Background(), j, p); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return json.NewEncoder(out).Encode(result{Seconds: p.took.Seconds(), Messages: j.Messages})
}
