package consumer_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers"
)

// outage is how long Postgres is away: FIRSTSEEN_TEST_OUTAGE, by default 5 s.
func outage(t *testing.T) time.Duration {
	text := os.Getenv("FIRSTSEEN_TEST_OUTAGE")
	if text == "" {
		return 5 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, "FIRSTSEEN_TEST_OUTAGE")
	return d
}

func TestHandlersThatHangWhilePostgresIsGoneSpendNoAttempt(t *testing.T) {
	t.Parallel()
	s, server := newStageOnOwnServer(t, consumertest.NewFake(t).Addr, 4)
	consumertest.Produce(t, s.addr, s.records(400, 40)...)
	answers := make(chan struct{}) // closed when what the handlers wait for is back
	hanging := make(chan struct{}, 10_000)
	handler := handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		hanging <- struct{}{}
		select {
		case <-answers:
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err := tx.Exec(ctx,
			`insert into effects (handler, message_id, key, "offset", "partition") values ('effect', $1, $2, $3, $4)`,
			m.ID, string(m.Key), m.Offset, m.Partition)
		return err
	})
	stop := s.start(s.consumer(s.obeying(handler, handlers.Retry{MaxAttempts: 1})))
	for range 4 {
		<-hanging // one in each partition's transaction
	}
	require.NoError(t, server.Stop(pgserver.Immediate))
	time.Sleep(outage(t))
	close(answers)
	require.NoError(t, server.Start(t.Context()))
	s.pool.Reset()
	s.awaitEffects(1, 10*time.Second)
	s.settled()
	stop()
	s.requireOnce(400)
	require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
	require.Zero(t, s.count(`select count(*) from firstseen.inbox where attempts > 0`))
}
