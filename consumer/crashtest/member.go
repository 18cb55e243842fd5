package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// variable carries what a consumer is told: a command line would show the DSN to everybody.
const variable = "FIRSTSEEN_TEST_MEMBER"

// Member is what one process of the group is told.
type Member struct {
	// DSN is the way to Postgres, by a proxy that loses what is to be lost. The schema is there already.
	DSN string
	// Brokers are Kafka's addresses.
	Brokers []string
	// ClientID is this process', and no other's. It must be told to Kafka: by it a process that was killed is told
	// from its successor, and taken out of the group, who would else wait for its session to end.
	ClientID string
	// Batch caps a batch's messages; 0: as it is by itself.
	Batch int
	// Fail has [Member.Failing] fail.
	Fail bool
	// Seed makes what it fails on.
	Seed uint64
	// Receiver is the address that [Member.Webhook] makes URLs of.
	Receiver string
}

// WebhookTimeout is to be a webhook's time limit in a crash test: the shorter it is, the less a run waits for answers
// that are swallowed, and for what a killed process was at.
const WebhookTimeout = time.Second

// Webhook is the URL that a handler of this name is to post to. It is on loopback.
func (m Member) Webhook(handler string) string { return m.Receiver + "/" + url.PathEscape(handler) }

// Here is what this process is told, and whether it is a consumer of a crash test at all.
func Here() (m Member, is bool, err error) {
	text, is := os.LookupEnv(variable)
	if !is {
		return m, false, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return m, true, fmt.Errorf("read %s, which the crash test sets: %w", variable, err)
	}
	return m, true, nil
}

func (m Member) environment() (string, error) {
	text, err := json.Marshal(m)
	return variable + "=" + string(text), err
}

// ErrNowAndThen is what a handler fails with, where it is made to.
var ErrNowAndThen = errors.New("failed now and then, as the crash test wants it")

// Failing is h, but for runs in which handlers fail now and then: it then fails on some messages, on half of them
// before h sees them and on half after h has done them, until each has failed twice by itself. h has to give each
// message more than two attempts, and better more than ten.
func (m Member) Failing(h handlers.BatchHandler) handlers.BatchHandler {
	if !m.Fail {
		return h
	}
	return &failing{to: h, seed: m.Seed, alone: map[uuid.UUID]int{}}
}

type failing struct {
	to   handlers.BatchHandler
	seed uint64

	mu    sync.Mutex
	alone map[uuid.UUID]int // how often a message has failed by itself
}

func (f *failing) HandleBatch(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
	before, after := f.choose(ms)
	if before {
		return ErrNowAndThen
	}
	if err := f.to.HandleBatch(ctx, tx, ms); err != nil {
		return err
	}
	if after {
		return ErrNowAndThen
	}
	return nil
}

// choose says whether a message of these is to fail, before its handler or after.
func (f *failing) choose(ms []dedup.Message) (before, after bool) {
	const oneIn, times = 4, 2
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range ms {
		id := ms[i].ID
		dice := f.dice(id)
		if dice%oneIn != 0 || f.alone[id] >= times {
			continue
		}
		if len(ms) == 1 {
			f.alone[id]++
		}
		before, after = before || dice/oneIn%2 == 0, after || dice/oneIn%2 == 1
	}
	return before, after
}

// dice is a number of its own for each message and seed.
func (f *failing) dice(id uuid.UUID) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", f.seed, id)
	return h.Sum64() >> 8
}
