package consumer_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

func TestOneBlockedPartitionOf64StarvesNoOther(t *testing.T) {
	t.Parallel()
	const partitions, messages, blocked = 64, 20_032, 7
	s := newStage(t, consumertest.NewFake(t).Addr, partitions)
	value := bytes.Repeat([]byte("1 KiB "), 171)
	var rs []*kgo.Record
	for i := range messages {
		r := s.record(fmt.Sprintf("key-%d", i%500), "", uuid.NewString())
		r.Partition, r.Value = int32(i%partitions), value
		rs = append(rs, r)
	}
	consumertest.ProduceTo(t, s.addr, rs...)
	release := make(chan struct{})
	block := handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		if ms[0].Partition == blocked {
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return effect("effect").HandleBatch(ctx, tx, ms)
	})
	for range 2 {
		s.start(s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
			cc.BufferBytes, cc.Transactions = 64<<10, 2
			require.NoError(t, hc.Handlers.Register("effect", block, s.topic))
		}))
	}
	const others = messages / partitions * (partitions - 1)
	s.awaitEffects(others, 60*time.Second)
	require.Equal(t, others, s.count(`select count(*) from effects`))
	require.Zero(t, s.count(`select count(*) from effects where "partition" = $1`, blocked))
	close(release)
	s.caughtUp()
	s.requireOnce(messages)
}
