package config

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

func TestFaultsOfOutbox(t *testing.T) {
	to := func(items string) string { return "outbox: {destinations: [" + items + "]}\n" }
	const at = "outbox.destinations[0]"
	requireFaults(t, to("{name: a, topics: [b, c]}, {name: d, topics: e, webhook: {url: 'https://h'}}, "+
		"{name: f, topics: f, log: true}"))
	requireFaults(t, to("{}"), at+".name: is required; name it", at+".topics: is required; list the topics")
	requireFaults(t, to("{name: a, topics: b}, {name: a, topics: [c, b]}"),
		"outbox.destinations[1].name: is the name of outbox.destinations[0] too",
		"outbox.destinations[1].topics[1]: has outbox.destinations[0] too; a message is sent to one of them")
	requireFaults(t, to("{name: a, topics: 'b c'}"), at+".topics[0]: is no name of a topic; Kafka takes up to 249")
	requireFaults(t, to("{name: a, topics: 'b c', log: true}"))
	requireFaults(t, to("{name: a, topics: b, webhook: {url: 'ftp://h'}}"), at+".webhook.url: must begin with https://")
	requireFaults(t, to("{name: a, topics: b, webhook: {url: 'https://h'}, log: true}"),
		at+".log: is given beside webhook; keep one of the two")
	requireFaults(t, to("{name: a, topics: b, retry: {base: 1h}}"),
		at+".retry.base: 1h0m0s is more than the longest pause")
	requireFaults(t, to("{name: a, topics: b, workers: 0, max_parked: -1}"), at+".workers: must be above 0",
		at+".max_parked: must be above 0")
	requireFaults(t, to("{name: a, topics: b, to: kafka}"),
		at+".to: unknown key; the keys here are name, topics, webhook,")
	requireFaults(t, "inbox: outbox\n"+to("{name: a, topics: b}"), "inbox: is the name of the outbox's own inbox")
	requireFaults(t, "inbox: outbox\n")
	_, err := loadText(t, minimal+to("{name: a, topics: b}"), "FIRSTSEEN_POSTGRES_MAX_CONNECTIONS=14")
	require.ErrorContains(t, err, "14 is too few; 15 are needed")
	_, err = loadText(t, minimal, "FIRSTSEEN_OUTBOX_DESTINATIONS=[{name: a, topics: b}]", "FIRSTSEEN_OUTBOX_BATCH=7")
	require.NoError(t, err)
}

func TestTopicsAreRequiredOnlyWhereNothingIsSentEither(t *testing.T) {
	const only = "outbox: {destinations: [{name: a, topics: b}]}\n"
	requireFaultsOf(t, withoutTopics,
		"topics: is required; list at least one with its handlers, or outbox.destinations to only send")
	requireFaultsOf(t, withoutTopics+"outbox: {batch: 10}\n", "topics: is required")
	requireFaultsOf(t, withoutTopics+"topics: []\noutbox: {destinations: []}\n", "topics: is required")
	requireFaultsOf(t, withoutTopics+"outbox: {destinations: [{topics: b}]}\n", "outbox.destinations[0].name: is required")
	requireFaultsOf(t, withoutTopics+only+"dead_letter_topic: dead\n",
		"dead_letter_topic: has no effect while no topics are read")
	requireFaultsOf(t, withoutTopics+only+"ingress: {topics: b}\n", "ingress.topics[0]: is none of the topics")
	require.Empty(t, held(t, withoutTopics+only), "the schema takes it")
	c, err := loadText(t, withoutTopics+only)
	require.NoError(t, err)
	require.Equal(t, "g reads nothing; sends the outbox's messages of 1 topic (b) to 1 destination; "+
		"Postgres is db:5432/shop, Kafka kafka-1:9092 (no TLS, no SASL)", c.Summary())
}

func TestBrokersAreRequiredOnlyWhereKafkaIsUsed(t *testing.T) {
	const none = "postgres: {dsn: 'postgres://u@db/shop'}\ngroup: g\n"
	const hook = "outbox: {destinations: [{name: a, topics: b, webhook: {url: 'https://h'}}, {name: l, topics: c, log: true}]}\n"
	c, err := loadText(t, none+hook)
	require.NoError(t, err)
	require.Empty(t, held(t, none+hook), "the schema takes it")
	require.Equal(t, "g reads nothing; sends the outbox's messages of 2 topics (b, c) to 2 destinations; "+
		"Postgres is db:5432/shop", c.Summary())
	const advice = "kafka.brokers: is required; list at least one address, host:port"
	requireFaultsOf(t, none, advice, "topics: is required")
	requireFaultsOf(t, none+"outbox: {destinations: [{name: a, topics: b}]}\n", advice)
	requireFaultsOf(t, none+hook+"topics: [{name: t, handlers: [{name: h, function: s.f}]}]\n", advice)
}

func TestRelayIsMadeAsTheConfigSays(t *testing.T) {
	c, err := loadText(t, complete, completeEnviron...)
	require.NoError(t, err)
	kafka := outbox.Func(func(context.Context, dedup.Message) error { return nil })
	made := 0
	got, err := c.ForOutbox(func() (handlers.Sender, error) { made++; return kafka, nil }, slog.Default())
	require.NoError(t, err)
	require.Equal(t, 1, made)
	require.Equal(t, []any{100, time.Second, true, 30 * time.Second, 10 * time.Second},
		[]any{got.Batch, got.IdlePoll, got.Listen, got.SendTimeout, got.DrainTimeout})
	require.Equal(t, dedup.Config{Inbox: "outbox", Schema: "seen", AnswerTimeout: 20 * time.Second,
		IdleAfter: 50 * time.Second, Patience: -1}, got.Store)
	events, crm, tried := got.Destinations[0], got.Destinations[1], got.Destinations[2]
	require.NotNil(t, events.Sender)
	require.Nil(t, events.Detached)
	events.Sender = nil
	require.Equal(t, outbox.Destination{Name: "events", Topics: []string{"events", "audit"}, Workers: 3, MaxParked: 50,
		Retry: handlers.Retry{Base: 2 * time.Second, Cap: time.Minute, MaxAttempts: 7, MaxAge: 24 * time.Hour}}, events)
	require.IsType(t, &handlers.Webhook{}, crm.Detached)
	require.Nil(t, crm.Sender)
	require.Equal(t, []any{4, 2, 10 * time.Second, 5},
		[]any{crm.Concurrency, crm.Workers, crm.Retry.Base, crm.Retry.MaxAttempts})
	require.NotNil(t, tried.Sender)
	require.Contains(t, c.Summary(),
		"; sends the outbox's messages of 4 topics (audit, crm, events, tried) to 3 destinations")
	_, err = c.ForOutbox(func() (handlers.Sender, error) { return nil, errors.New("no broker") }, slog.Default())
	require.EqualError(t, err, "destination events of the outbox: no broker")
}
