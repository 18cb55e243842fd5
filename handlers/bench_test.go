package handlers

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

// benchHandler queues one insert a message, and one that fails where the message says so.
func benchHandler() BatchHandler {
	return Queue(QueuedFunc(func(q *pgx.Batch, m dedup.Message) error {
		if string(m.Value) == "fail" {
			q.Queue(`select 1 / 0`)
			return nil
		}
		q.Queue(`insert into effects (handler, message_id, key, "offset") values ('h', $1, $2, $3)`, m.ID, string(m.Key), m.Offset)
		return nil
	}))
}

// BenchmarkFailing takes batches of 1000 of which some messages fail; each message has a key of its own. The failed
// ones stay parked.
func BenchmarkFailing(b *testing.B) {
	whole := 0.0
	for _, perMille := range []int{0, 1, 10, 100} {
		b.Run(fmt.Sprintf("%.1f%%", float64(perMille)/10), func(b *testing.B) {
			bench := newBench(b)
			p := bench.processor(nil, Registration{Name: "h", Handler: benchHandler(), Retry: Retry{Base: time.Hour, Cap: time.Hour}})
			messages := 0
			for b.Loop() {
				ms := make([]dedup.Message, 1000)
				for i := range ms {
					id := uuid.Must(uuid.NewV7())
					ms[i] = dedup.Message{ID: id, Topic: benchTopic, Offset: bench.position.Next + int64(i), Key: []byte(id.String()), Value: []byte("ok")}
					if perMille > 0 && i%(1000/perMille) == 1000/perMille/2 {
						ms[i].Value = []byte("fail")
					}
				}
				bench.process(p, ms)
				messages += len(ms)
			}
			rate := float64(messages) / b.Elapsed().Seconds()
			b.ReportMetric(rate, "msg/s")
			if perMille == 0 {
				whole = rate
			}
			b.ReportMetric(rate/whole, "of_0%")
		})
	}
}

// BenchmarkLaneDrain drains parked messages, half of which are in one lane in backoff and the others in a lane each:
// FIRSTSEEN_BENCH_PARKED of them, by default 100000.
func BenchmarkLaneDrain(b *testing.B) {
	parked := 100_000
	if text := os.Getenv("FIRSTSEEN_BENCH_PARKED"); text != "" {
		var err error
		parked, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	for b.Loop() {
		b.StopTimer()
		bench := newBench(b)
		p := bench.processor(nil, Registration{Name: "h", Handler: benchHandler()})
		bench.process(p, bench.messages("k=fail")) // makes the scope
		bench.exec(`delete from firstseen.parked; delete from firstseen.lanes`)
		bench.exec(`insert into firstseen.parked (scope_id, lane, "offset", "partition", attempts, message_id, topic, key, payload, reason)
			select s.scope_id, case when n % 2 = 0 then '00000000-0000-8000-8000-000000000000' else gen_random_uuid() end,
			       n, 0, 1, gen_random_uuid(), $2, 'key', convert_to(repeat('x', 300), 'UTF8'), 'failed'
			from generate_series(1, $1) n, firstseen.scopes s`, parked, benchTopic)
		bench.exec(`insert into firstseen.lanes (scope_id, lane, due_at, topic, "partition")
			select scope_id, lane, now() + case when count(*) > 1 then interval '1 h' else '0' end, min(topic), 0
			from firstseen.parked group by 1, 2`)
		ctx, cancel := context.WithCancel(context.Background())
		b.StartTimer()
		begin := time.Now()
		ended := make(chan struct{})
		go func() { p.RunLanes(ctx); close(ended) }()
		for bench.count(`select count(*) from (select from firstseen.lanes limit 2) l`) > 1 {
			time.Sleep(20 * time.Millisecond)
		}
		b.ReportMetric(float64(parked/2)/time.Since(begin).Seconds(), "msg/s")
		cancel()
		<-ended
	}
}
