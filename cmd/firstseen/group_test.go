package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// handledInGo has a program with a handler of its own consume the shop's topic until its messages are committed up to
// offset n in partition 0, and so many were booked.
func (s *shop) handledInGo(n int64, booked int) {
	s.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	store, err := dedup.Open(s.t.Context(), s.db.Pool, dedup.Config{Inbox: s.group})
	require.NoError(s.t, err)
	var registry handlers.Registry
	book := handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		_, err := tx.Exec(ctx, `insert into billing.booked values ($1)`, m.ID)
		return err
	})
	require.NoError(s.t, registry.Register("book", handlers.Each(book), s.topic))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry, Logger: quiet})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- consumer.Run(ctx, consumer.Config{Connection: consumer.Connection{Brokers: []string{s.addr}}, Group: s.group,
			Logger: quiet}, processor)
	}()
	consumertest.AwaitCommitted(s.t, s.addr, s.group, s.topic, 0, n)
	eventually(s.t, func() bool { return s.booked() >= booked })
	cancel()
	require.NoError(s.t, <-done)
}

// Without a config: the group's handlers are Go.
func TestCommandsWorkForAGroupWhoseHandlersAreGo(t *testing.T) {
	s := newShop(t, booking)
	t.Chdir(t.TempDir())
	s.produce(0, 20)
	end := consumertest.EndOffset(t, s.addr, s.topic, 0)
	s.handledInGo(end, 20)
	ask := func(code int, args ...string) string {
		t.Helper()
		stdout, stderr, got := command(t, append(args, "--dsn", s.db.DSN)...)
		require.Equal(t, code, got, stdout+stderr)
		return stdout + stderr
	}
	of := []string{"--brokers", s.addr, "--group", s.group}
	both := func(args ...string) []string { return append(args, of...) }
	for _, args := range [][]string{both("offsets", "show", s.topic), both("offsets", "show", "--topics", s.topic)} {
		require.Contains(t, ask(exitOK, args...), s.topic+"/0")
	}
	require.Contains(t, ask(exitUsage, both("offsets", "show")...), "give --topics")
	require.Contains(t, ask(exitOK, both("offsets", "reset", s.topic, "--to", "earliest", "--why", "mended")...),
		"the group goes on there")
	require.Zero(t, consumertest.CommittedOffset(t, s.addr, s.group, s.topic, 0))
	s.handledInGo(end, 20)
	require.Equal(t, 20, s.booked(), "what was seen has no effect again")

	require.Contains(t, ask(exitFailure, both("retention", "plan")...), "neither --ids nor --keep")
	require.Contains(t, ask(exitOK, both("retention", "plan", "--ids", "400d", "--keep", "90d")...), "book")
	require.Contains(t, ask(exitUsage, both("retention", "plan", "--ids", "long")...), "--ids")
	require.Contains(t, ask(exitOK, "rerun", "--handler", "book", "--inbox", s.group, "--id", "3", "--why", "mended", "--yes"),
		"1 message on the way to the handler")
	s.handledInGo(end, 21)
	require.Equal(t, 21, s.booked())
	require.Contains(t, ask(exitUsage, "offsets", "show", "--group", s.group), "kafka.brokers: is required")
}
