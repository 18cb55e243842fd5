package consumer_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

// With pgxpool's default, four connections, a handler that takes a second one gets it.
func TestAHandlerMayTakeASecondConnectionOfTheSamePool(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 8)
	pool := deduptest.OpenPool(t, s.dsn, func(c *pgxpool.Config) { c.MaxConns = 4 })
	store, err := dedup.Open(t.Context(), pool, dedup.Config{Inbox: s.group})
	require.NoError(t, err)
	c := s.consumer(func(_ *consumer.Config, hc *handlers.Config) {
		hc.Store = store
		require.NoError(t, hc.Handlers.Register("effect", handlers.Each(handlers.HandlerFunc(func(ctx context.Context,
			tx pgx.Tx, m dedup.Message) error {
			if _, err := pool.Exec(ctx, `select pg_sleep(0.005)`); err != nil { // so that they meet
				return err
			}
			_, err := tx.Exec(ctx, `insert into effects (handler, message_id) values ('effect', $1)`, m.ID)
			return err
		})), s.topic))
	})
	consumertest.Produce(t, s.addr, s.records(160, 40)...)
	s.start(c)
	s.caughtUp()
	require.Equal(t, 160, s.count(`select count(*) from effects`))
	require.Zero(t, s.count(`select coalesce(sum(attempts), 0) from firstseen.inbox`))
}

func TestAPoolThatIsTooSmallIsToldAtTheStart(t *testing.T) {
	t.Parallel()
	db := deduptest.New(t)
	for _, c := range []struct {
		pool                int32
		transactions, takes int
		want                string // the error's text; empty: none
	}{
		{7, 4, 0, ""},
		{6, 4, 0, "the pool has 6 connections and 7 are needed"},
		{4, 0, 0, ""},
		{3, 0, 0, "the pool has 3 connections and 4 are needed"},
		{12, 4, 1, "the pool has 12 connections and 13 are needed"},
		{7, 0, 1, ""},
		{6, 0, 1, "set pool_max_conns=7 "},
	} {
		pool := deduptest.OpenPool(t, db.DSN, func(p *pgxpool.Config) { p.MaxConns = c.pool })
		store, err := dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test"})
		require.NoError(t, err)
		registry := &handlers.Registry{}
		require.NoError(t, registry.Add(
			handlers.Registration{Name: "h", Topics: []string{"orders"}, Handler: effect("h"), Connections: c.takes}))
		processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry, Logger: logger()})
		require.NoError(t, err)
		cfg := quick("localhost:1", "g")
		cfg.Transactions = c.transactions
		if _, err = consumer.New(cfg, processor); c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}
