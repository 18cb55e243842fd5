package config

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeadLetterTopicReachesTheConsumer(t *testing.T) {
	c, err := loadText(t, minimal+"dead_letter_topic: orders.dead\n")
	require.NoError(t, err)
	got, err := c.Consumer(slog.Default())
	require.NoError(t, err)
	require.Equal(t, "orders.dead", got.DeadTopic)

	c, err = loadText(t, minimal, "FIRSTSEEN_DEAD_LETTER_TOPIC=dead")
	require.NoError(t, err)
	require.Equal(t, "dead", c.DeadLetterTopic)
}

func TestDeadLetterTopicMustBeAnotherTopicWithAName(t *testing.T) {
	_, err := loadText(t, minimal+"dead_letter_topic: orders\n")
	require.ErrorContains(t, err, "dead_letter_topic (line 6, column 1): is the topic of topics[0]")
	_, err = loadText(t, minimal+"dead_letter_topic: dead letters\n")
	require.ErrorContains(t, err, "dead_letter_topic (line 6, column 1): is no name of a topic")
}
