package kafkaserver_test

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest/kafkaserver"
)

func TestOptimizedKafkaStartsWithItsSettingsFromAnyDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	c := start(t, kafkaserver.Config{
		Optimize: true,
		Settings: map[string]string{"num.io.threads": "5", "offsets.topic.num.partitions": "2"},
	})
	require.Len(t, c.Addrs(), 1)

	settings := settingsOf(t, c.Brokers[0])
	require.Equal(t, "5", settings["num.io.threads"])
	require.Equal(t, "2", settings["num.network.threads"], "a default stays")
	require.Equal(t, 2, partitions(t, c, "__consumer_offsets"), "groups are served")
}

func TestCloseEndsKafkaAndRemovesItsFiles(t *testing.T) {
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	c := start(t, kafkaserver.Config{})

	c.Close()

	_, err := net.Dial("tcp", c.Brokers[0].Addr)
	require.Error(t, err)
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestWrongSettingIsReportedWithKafkasWords(t *testing.T) {
	_, err := kafkaserver.Start(t.Context(), kafkaserver.Config{Settings: map[string]string{"num.io.threads": "some"}})
	require.ErrorContains(t, err, "Invalid value some for configuration num.io.threads")
}

func start(t *testing.T, config kafkaserver.Config) *kafkaserver.Cluster {
	t.Helper()
	c, err := kafkaserver.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func settingsOf(t *testing.T, b *kafkaserver.Broker) map[string]string {
	t.Helper()
	described, err := admin(t, b.Addr).DescribeBrokerConfigs(t.Context(), int32(b.ID))
	require.NoError(t, err)
	one, err := described.On(strconv.Itoa(b.ID), nil)
	require.NoError(t, err)
	values := map[string]string{}
	for _, c := range one.Configs {
		values[c.Key] = c.MaybeValue()
	}
	return values
}

func partitions(t *testing.T, c *kafkaserver.Cluster, topic string) int {
	t.Helper()
	topics, err := admin(t, c.Addrs()[0]).ListTopicsWithInternal(t.Context(), topic)
	require.NoError(t, err)
	return len(topics[topic].Partitions)
}

func admin(t *testing.T, addr string) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}
