package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producer sends orders that are numbered by key, resends some of them under new offsets, and wild ones beside.
type producer struct {
	client *kgo.Client
	random *rand.Rand
	wild   *kgo.Client // with compression that makes bombs

	numbers [keys]int64
	recent  []*kgo.Record // candidates for a resend
	serial  int

	sent, acknowledged, refused atomic.Int64
}

const (
	keys   = 400
	recent = 20_000
)

func newProducer(w *world, random *rand.Rand) (*producer, error) {
	shared := []kgo.Opt{kgo.SeedBrokers(w.kafka.Addrs()...), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedBytes(256 << 20)}
	client, err := kgo.NewClient(append(shared, kgo.ProducerLinger(5*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	bombs, err := kgo.NewClient(append(shared, kgo.ProducerBatchMaxBytes(32<<20),
		kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.GzipCompression()))...)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &producer{client: client, wild: bombs, random: random}, nil
}

// run sends at a rate until ctx ends, and then waits until everything is acknowledged or refused.
func (p *producer) run(ctx context.Context, rate int) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		for range max(1, rate/20) {
			p.send(p.client, p.order())
		}
		if p.random.IntN(20) == 0 {
			p.send(p.wild, p.hostile())
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	for _, client := range []*kgo.Client{p.client, p.wild} {
		if err := client.Flush(flush); err != nil {
			slog.Error("not all was acknowledged", "error", err)
		}
	}
	p.wild.Close()
}

func (p *producer) send(client *kgo.Client, r *kgo.Record) {
	p.sent.Add(1)
	client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			p.refused.Add(1)
			slog.Warn("the broker refused a record", "topic", r.Topic, "error", err)
			return
		}
		p.acknowledged.Add(1)
	})
}

// behaviours of the handler: one order in so many brings each about.
var behaviours = []struct {
	name  string
	oneIn int
}{{"flaky", 50}, {"slow", 2000}, {"poison", 3000}, {"outage", 8000}, {"backend", 8000}, {"hang", 20_000}}

// order is a new one, or one in five times a copy of an earlier one.
func (p *producer) order() *kgo.Record {
	if len(p.recent) > 0 && p.random.IntN(5) == 0 {
		again := *p.recent[p.random.IntN(len(p.recent))]
		return &kgo.Record{Topic: again.Topic, Key: again.Key, Value: again.Value, Headers: again.Headers}
	}
	key := p.random.IntN(keys)
	p.numbers[key]++
	does := "well"
	for _, b := range behaviours {
		if p.random.IntN(b.oneIn) == 0 {
			does = b.name
		}
	}
	r := &kgo.Record{Topic: orders, Key: fmt.Appendf(nil, "k%d", key),
		Value:   fmt.Appendf(nil, "%s %d ", does, p.numbers[key]),
		Headers: identified(fmt.Sprintf("%s-%d-%d", does, key, p.numbers[key]))}
	if len(p.recent) < recent {
		p.recent = append(p.recent, r)
	} else {
		p.recent[p.random.IntN(recent)] = r
	}
	return r
}

func identified(id string) []kgo.RecordHeader {
	return []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}
}

// hostile is a record that brokers take and programs stumble over.
func (p *producer) hostile() *kgo.Record {
	p.serial++
	r := &kgo.Record{Topic: wild, Headers: identified(fmt.Sprintf("wild-%d", p.serial))}
	switch p.serial % 8 {
	case 0:
		r.Timestamp = time.UnixMilli(time.Now().UnixNano()) // somebody's nanoseconds
	case 1:
		r.Timestamp = time.UnixMilli(-210_866_803_200_001) // before what Postgres can write
	case 2:
		r.Timestamp = time.UnixMilli(math.MaxInt64 / 2)
	case 3:
		r.Value = make([]byte, 24<<20) // a bomb, once compressed
	case 4:
		r.Key, r.Value = []byte{0, 0xff, 0xc2}, []byte("\x00\xff\xfe")
	case 5:
		r.Value = []byte("\u202e\u009b31m<script>")
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "\x00\u200b", Value: make([]byte, 64<<10)})
	case 6:
		r.Value = nil
	default:
		r.Value = []byte{}
	}
	return r
}
