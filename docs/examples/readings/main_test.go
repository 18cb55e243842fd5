package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }

func TestReadingsAreKeptOnceAndWhatIsNoneIsPutAside(t *testing.T) {
	db, broker := deduptest.New(t), consumertest.NewFake(t).Addr
	consumertest.CreateTopic(t, broker, "readings", 1)
	produce := func(value string) {
		consumertest.Produce(t, broker, consumertest.Record("readings", "s1", value, ""))
	}
	for second := range 10 {
		value := fmt.Sprintf(`{"sensor": "s1", "at": "2026-01-01T00:00:%02dZ", "celsius": %d.5}`, second, second)
		produce(value)
		produce(value)
	}
	produce(`{"sensor": "s1", "at": "yesterday", "celsius": 1}`)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, db.DSN, []string{broker}) }()
	consumertest.AwaitCommitted(t, broker, "readings", "readings", 0, 21)
	stop()
	require.NoError(t, <-ended)
	var kept, dead int
	require.NoError(t, db.Pool.QueryRow(t.Context(),
		`select (select count(*) from readings), (select count(*) from firstseen.dead_letters)`).Scan(&kept, &dead))
	require.Equal(t, []int{10, 1}, []int{kept, dead})
}
