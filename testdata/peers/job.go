package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
)

// idHeader has a message's ID, a UUID as text.
const idHeader = "message-id"

var errNoID = errors.New("a message has no header " + idHeader)

// job comes from the benchmark.
type job struct {
	Brokers    []string `json:"brokers"`
	Topic      string   `json:"topic"`
	Group      string   `json:"group"`
	DSN        string   `json:"dsn"`
	Messages   int      `json:"messages"`   // as many as the topic holds
	Partitions int      `json:"partitions"` // of the topic
}

func readJob(in io.Reader) (j job, err error) {
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return j, fmt.Errorf("read job: %w", err)
	}
	if len(j.Brokers) == 0 || j.Topic == "" || j.Messages < 1 || j.Partitions < 1 {
		return j, errors.New("read job: brokers, topic, messages and partitions are needed")
	}
	return j, nil
}

// pool gives each of the workers a connection.
func (j job) pool(ctx context.Context, workers int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(j.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(workers)
	return pgxpool.NewWithConfig(ctx, config)
}

// progress counts the messages that have committed. Its methods are safe for concurrent use.
type progress struct {
	start time.Time
	done  chan struct{} // closed when all have committed

	mu   sync.Mutex
	left int
	next map[int]int64 // partition → the offset after the last that has committed
	took time.Duration // written before done is closed
}

func startProgress(messages int) *progress {
	return &progress{start: time.Now(), done: make(chan struct{}), left: messages, next: map[int]int64{}}
}

// handled notes a message that has committed. One that comes again after a rebalance does not count.
func (p *progress) handled(partition int, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset < p.next[partition] {
		return
	}
	p.next[partition] = offset + 1
	p.left--
	if p.left == 0 {
		p.finish()
	}
}

// finish stops the clock.
func (p *progress) finish() {
	p.took = time.Since(p.start)
	close(p.done)
}

func (p *progress) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// patience is some of the clients' commit intervals.
const patience = 5 * time.Second

// awaitCommitted waits, off the clock, until the group's offsets have followed: clients commit them in the background,
// and one that is closed too early gives some of them up. It is no error if they never follow: kafka-go may move
// offsets back after a rebalance, and then those messages would be delivered again, in vain.
func (p *progress) awaitCommitted(ctx context.Context, j job) error {
	client := &kafka.Client{Addr: kafka.TCP(j.Brokers...)}
	request := &kafka.OffsetFetchRequest{GroupID: j.Group, Topics: map[string][]int{j.Topic: p.partitions()}}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		answer, err := client.OffsetFetch(ctx, request)
		if err != nil {
			return fmt.Errorf("read offsets of %s: %w", j.Group, err)
		}
		if p.reached(answer.Topics[j.Topic]) {
			return nil
		}
	}
	fmt.Fprintln(os.Stderr, "peers: all is handled, but the client has left offsets of the group behind")
	return nil
}

func (p *progress) partitions() (all []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for partition := range p.next {
		all = append(all, partition)
	}
	return all
}

func (p *progress) reached(committed []kafka.OffsetFetchPartition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range committed {
		if c.CommittedOffset < p.next[c.Partition] {
			return false
		}
	}
	return len(committed) == len(p.next)
}
