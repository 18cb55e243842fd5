package main

import (
	"context"
	"errors"
	"log"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The habit of Watermill's users: its Router and its Kafka subscriber, on Sarama's consumer group. Watermill's page on
// Pub/Subs promises at-least-once and tells users to write their own deduplication; the Deduplicator that it comes
// with remembers a minute of messages in memory, so it is no peer, and its exactly-once example needs the messages
// to be in the database already. So the handler does what a careful user writes: ID and effect in one transaction,
// by pgx, which spares database/sql's detours.
//
// The set-up is the fastest that Watermill has: the subscriber gives one message of each claimed partition to
// the router at a time and the router runs these side by side, so there is a database connection for each
// partition; offsets go by Sarama's autocommit, once a second, not by a commit for each message; no middleware
// and no log but of errors.

func withWatermill(ctx context.Context, j job, p *progress) error {
	pool, err := j.pool(ctx, j.Partitions)
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	router, err := newRouter(j, func(m *message.Message) error {
		err := handleMessage(m, pool, p)
		if err != nil {
			stop(err) // a user would let Watermill send it again, for ever
		}
		return err
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	select {
	case <-p.done:
		err = p.awaitCommitted(ctx, j)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case err := <-ended:
		return errors.Join(errors.New("the router ended early"), err)
	}
	return errors.Join(err, router.Close(), <-ended)
}

func newRouter(j job, handle message.NoPublishHandlerFunc) (*message.Router, error) {
	logger := &watermill.StdLoggerAdapter{ErrorLogger: log.Default()}
	config := watermillkafka.DefaultSaramaSubscriberConfig()
	config.Version = sarama.V3_6_0_0 // by default Sarama speaks the protocol of 2017
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	subscriber, err := watermillkafka.NewSubscriber(watermillkafka.SubscriberConfig{
		Brokers:               j.Brokers,
		Unmarshaler:           watermillkafka.DefaultMarshaler{},
		OverwriteSaramaConfig: config,
		ConsumerGroup:         j.Group,
	}, logger)
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return nil, err
	}
	router.AddConsumerHandler("effects", j.Topic, subscriber, handle)
	return router, nil
}

func handleMessage(m *message.Message, pool *pgxpool.Pool, p *progress) error {
	ctx := m.Context()
	id, err := uuid.Parse(m.Metadata.Get(idHeader))
	if err != nil {
		return err
	}
	if err := handleOnce(ctx, pool, id, m.Payload); err != nil {
		return err
	}
	partition, _ := watermillkafka.MessagePartitionFromCtx(ctx)
	offset, _ := watermillkafka.MessagePartitionOffsetFromCtx(ctx)
	p.handled(int(partition), offset)
	return nil
}
