package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// report says what was done and what was found.
type report struct {
	Seed         uint64         `json:"seed"`
	Seconds      float64        `json:"seconds"`
	Sent         int64          `json:"sent"`
	Acknowledged int64          `json:"acknowledged"`
	Records      int            `json:"records"` // in Kafka
	Unique       int            `json:"unique"`  // message IDs in Kafka
	Effects      int            `json:"effects"` // rows of the ledger
	Reruns       int            `json:"reruns"`
	Lost         int            `json:"lost"`
	Twice        int            `json:"twice"`
	OutOfOrder   int            `json:"out_of_order"`
	PeakMemory   int64          `json:"peak_memory"` // bytes resident, of any member
	Packets      int            `json:"packets_lost"`
	Done         map[string]int `json:"done"`
	Dead         map[string]int `json:"dead"`   // dead letters seen meanwhile, by behaviour and reason
	Faults       []string       `json:"faults"` // what should not be

	mu sync.Mutex
}

func (r *report) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Done[what]++
}

// most caps the faults that are listed.
const most = 200

func (r *report) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	slog.Error("FAULT", "what", text)
	if len(r.Faults) < most {
		r.Faults = append(r.Faults, text)
	}
}

func (r *report) memory(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.PeakMemory = max(r.PeakMemory, bytes)
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "seed %d, %.0f s: %d records of %d unique messages in Kafka, %d effects (%d by rerun)\n",
		r.Seed, r.Seconds, r.Records, r.Unique, r.Effects, r.Reruns)
	fmt.Fprintf(w, "%d lost, %d twice, %d out of order; peak memory of a member %d MiB\n",
		r.Lost, r.Twice, r.OutOfOrder, r.PeakMemory>>20)
	if r.Packets > 0 {
		fmt.Fprintf(w, "%d packets lost\n", r.Packets)
	}
	for _, counts := range []map[string]int{r.Done, r.Dead} {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(w, "  %6d  %s\n", counts[name], name)
		}
	}
	for _, f := range r.Faults {
		fmt.Fprintln(w, "FAULT", f)
	}
	if len(r.Faults) == 0 {
		fmt.Fprintln(w, "all is well")
	}
}

// behaviour is the part of a message's ID before the first dash. Its handler does so.
func behaviour(id string) string {
	does, _, _ := strings.Cut(id, "-")
	return does
}

// mayDie says of a behaviour that its message may become a dead letter before the world is mended.
func mayDie(does string) bool {
	return slices.Contains([]string{"poison", "outage", "backend", "hang"}, does)
}

// watchDead looks who was given up: nobody that did nothing.
func (w *world) watchDead(ctx context.Context, r *report) {
	seen := map[string]bool{}
	for ; ctx.Err() == nil; sleep(ctx, 2*time.Second) {
		rows, err := w.pool.Query(ctx,
			`select coalesce(raw_id, ''), reason, coalesce(error, ''), died_at::text from firstseen.dead_letters`)
		if err != nil {
			continue
		}
		for rows.Next() {
			var id, reason, text, at string
			if rows.Scan(&id, &reason, &text, &at) != nil || seen[id+at] {
				continue
			}
			seen[id+at] = true
			r.mu.Lock()
			r.Dead[behaviour(id)+": "+reason]++
			r.mu.Unlock()
			if !mayDie(behaviour(id)) {
				r.fault("%s did nothing wrong and was given up: %s: %s", id, reason, text)
			}
		}
		rows.Close()
	}
}

// settle mends everything, waits until all is done, and judges.
func (w *world) settle(ctx context.Context, p *producer, r *report) error {
	w.proxy.quiet.Store(false)
	if err := w.pg.Start(ctx); err != nil {
		return err
	}
	for _, b := range w.kafka.Brokers {
		if err := b.Start(); err != nil {
			return err
		}
	}
	for _, m := range w.members {
		m.turn(true)
	}
	if _, err := w.pool.Exec(ctx, `insert into torture.mended values (now())`); err != nil {
		return fmt.Errorf("mend: %w", err)
	}
	r.Sent, r.Acknowledged = p.sent.Load(), p.acknowledged.Load()
	if n := p.refused.Load(); n > 0 {
		slog.Warn("records that the brokers refused", "count", n)
	}
	truth, err := readAll(ctx, w.kafka.Addrs())
	if err != nil {
		return fmt.Errorf("read what is in Kafka: %w", err)
	}
	r.Records, r.Unique = truth.records, len(truth.first[orders])+len(truth.first[wild])
	if int64(r.Records) < r.Acknowledged {
		r.fault("Kafka itself lost records: %d of %d acknowledged ones", r.Records, r.Acknowledged)
	}
	w.await(ctx, truth, r)
	return w.judge(ctx, truth, r)
}

// await waits until the ledger has every ID, for as long as it still gets more of them.
func (w *world) await(ctx context.Context, truth *truth, r *report) {
	want := 3*len(truth.first[orders]) + len(truth.first[wild])
	best, since := -1, time.Now()
	for ctx.Err() == nil && time.Since(since) < w.o.settle {
		_, _ = w.command(ctx, "dead", "redrive", "--all", "--why", "mended")
		var have, parked int
		err := w.pool.QueryRow(ctx, `select (select count(*) from (select distinct handler, id from torture.ledger) d),
			(select count(*) from firstseen.parked)`).Scan(&have, &parked)
		if err != nil {
			slog.Warn("the ledger can't be read", "error", err)
		}
		if have >= want && parked == 0 {
			return
		}
		if have-parked != best {
			best, since = have-parked, time.Now()
		}
		slog.Info("settling", "effects", have, "of", want, "parked", parked)
		sleep(ctx, 3*time.Second)
	}
	r.fault("it stood still for %s with work left", w.o.settle)
}

// truth has the content of Kafka, as its own reader sees it: for each topic the place of each ID's first record among
// all.
type truth struct {
	records int
	first   map[string]map[string]place
}

type place struct {
	partition int32
	offset    int64
}

// readLimit ends the reading of all topics.
const readLimit = 10 * time.Minute

func readAll(ctx context.Context, addrs []string) (*truth, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeTopics(orders, wild), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxPartitionBytes(32<<20))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, orders, wild)
	if err != nil {
		return nil, err
	}
	t := &truth{first: map[string]map[string]place{orders: {}, wild: {}}}
	left := 0
	ends.Each(func(o kadm.ListedOffset) { left += int(o.Offset) })
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), fetches.Err()); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			t.add(r)
		})
	}
	return t, nil
}

func (t *truth) add(r *kgo.Record) {
	t.records++
	id := string(r.Headers[0].Value)
	if at, seen := t.first[r.Topic][id]; !seen || r.Offset < at.offset && r.Partition == at.partition {
		t.first[r.Topic][id] = place{r.Partition, r.Offset}
	}
}

// judge holds the ledger against the truth.
func (w *world) judge(ctx context.Context, truth *truth, r *report) error {
	rows, err := w.pool.Query(ctx,
		`select handler, id, coalesce(key, ''), coalesce(n, 0) from torture.ledger order by seq`)
	if err != nil {
		return err
	}
	defer rows.Close()
	effects := map[string]map[string]int{"book": {}, "echo": {}, "sent": {}, "wild": {}}
	lastOf := map[string]effect{} // by handler and key
	for rows.Next() {
		var handler string
		var e effect
		if err := rows.Scan(&handler, &e.id, &e.key, &e.n); err != nil {
			return err
		}
		r.Effects++
		again := effects[handler][e.id] > 0
		effects[handler][e.id]++
		if handler == "wild" || again || mayDie(behaviour(e.id)) {
			continue
		}
		if before := lastOf[handler+"/"+e.key]; before.n > e.n {
			r.OutOfOrder++
			r.fault("%s: %s took effect after %s of the same key", handler, e.id, before.id)
		}
		lastOf[handler+"/"+e.key] = e
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for handler, topic := range map[string]string{"book": orders, "echo": orders, "sent": orders, "wild": wild} {
		w.compare(handler, truth.first[topic], effects[handler], r)
	}
	return nil
}

type effect struct {
	id, key string
	n       int64
}

// compare holds a handler's effects against the IDs that there are.
func (w *world) compare(handler string, first map[string]place, effects map[string]int, r *report) {
	for id, at := range first {
		more := 0
		if handler == "echo" {
			more = w.rerun[id] // at most: a rerun that a fault met may not have happened
		}
		switch n := effects[id]; {
		case n == 0:
			r.Lost++
			r.fault("%s: %s at %d@%d never took effect", handler, id, at.partition, at.offset)
		case n > 1+more:
			r.Twice++
			r.fault("%s: %s at %d@%d took effect %s times, %d reruns were asked for",
				handler, id, at.partition, at.offset, strconv.Itoa(n), more)
		default:
			r.Reruns += n - 1
		}
	}
	for id := range effects {
		if _, known := first[id]; !known {
			r.fault("%s: %s took effect and is not in Kafka", handler, id)
		}
	}
}
