package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/crashtest"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }

func TestPaymentsAreBookedOnceAndWaitForTheirAccount(t *testing.T) {
	db, broker := deduptest.New(t), consumertest.NewFake(t).Addr
	consumertest.CreateTopic(t, broker, "payments", 1)
	_, err := db.Pool.Exec(t.Context(), tables+`; insert into accounts values ('alice')`)
	require.NoError(t, err)
	alice := `{"account": "alice", "cents": 100}`
	consumertest.Produce(t, broker,
		consumertest.Record("payments", "alice", alice, "p1"), consumertest.Record("payments", "alice", alice, "p1"),
		consumertest.Record("payments", "alice", "a lot", "p2"), consumertest.Record("payments", "bob", `{"account": "bob", "cents": 7}`, "p3"))

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, db.DSN, consumer.Connection{Brokers: []string{broker}}) }()
	consumertest.AwaitCommitted(t, broker, "payments", "payments", 0, 4)
	stop()
	require.NoError(t, <-ended)
	var cents, dead, waiting int
	require.NoError(t, db.Pool.QueryRow(t.Context(), `select (select cents from accounts where name = 'alice'),
		(select count(*) from firstseen.dead_letters), (select count(*) from firstseen.parked)`).Scan(&cents, &dead, &waiting))
	require.Equal(t, []int{100, 1, 1}, []int{cents, dead, waiting})
}

func TestPaymentsAreBookedOnceWhileConsumersAreKilled(t *testing.T) {
	sample := strings.Repeat(`{"key": "alice", "id": "ID", "payload": {"account": "alice", "cents": 100}}
		{"key": "bob", "id": "ID", "payload": {"account": "bob", "cents": 7}}
		`, 8)
	for i := range 16 {
		sample = strings.Replace(sample, "ID", strconv.Itoa(i), 1)
	}
	messages, err := crashtest.ReadMessages(strings.NewReader(sample), "payments")
	require.NoError(t, err)
	consumertest.CrashTest(t, crashtest.Config{Messages: messages, Faults: 4,
		Schema: tables + `; insert into accounts values ('alice'), ('bob')`},
		func(ctx context.Context, m crashtest.Member) error {
			return run(ctx, m.DSN, consumer.Connection{Brokers: m.Brokers, ClientID: m.ClientID})
		})
}
