package consumer

import (
	"time"

	"github.com/firstseen/firstseen/consumer/internal/wire"
)

// Buffered is what a consumer's fetched records cost.
func Buffered(c *Consumer) int { return c.memory.Used() }

// BufferedOf is what the buffer of a partition takes, in bytes.
func BufferedOf(c *Consumer, topic string, partition int32) int {
	_, s := c.life.status()
	return s.partitions[wire.TopicPartition{Topic: topic, Partition: partition}].Facts().Bytes
}

// MakePartitionsEvery has a consumer make partitions of the inbox more often than each hour.
func MakePartitionsEvery(c *Consumer, d time.Duration) { c.partitionsEvery = d }

// Resting says whether what was fetched of a partition was given up for a pause.
func Resting(c *Consumer, topic string, partition int32) bool {
	_, s := c.life.status()
	return s.partitions[wire.TopicPartition{Topic: topic, Partition: partition}].Facts().Resting
}
