package consumertest

import (
	"context"
	"os"
	"testing"

	"github.com/firstseen/firstseen/consumer/consumertest/kafkaserver"
)

// Broker is one real Kafka node, to stop, crash and start again.
type Broker = kafkaserver.Broker

// Cluster is a Kafka of one test.
type Cluster = kafkaserver.Cluster

// StartKafka starts a broker for this test alone, to stop and start again. It is gone at the test's end.
func StartKafka(t testing.TB) *Broker {
	t.Helper()
	return StartKafkaCluster(t, 1).Brokers[0]
}

// StartKafkaCluster starts n brokers for this test alone. Of three or more, topics have three replicas by
// default and a write needs two, so one broker can be stopped.
func StartKafkaCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	return StartKafkaAs(t, kafkaserver.Config{Brokers: n})
}

// StartKafkaAs starts the brokers of a config for this test alone.
func StartKafkaAs(t testing.TB, config kafkaserver.Config) *Cluster {
	t.Helper()
	needJava(t)
	cluster, err := kafkaserver.Start(context.Background(), config)
	if err != nil {
		t.Fatalf("consumertest: %v", err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// needJava skips the test, or fails it where Kafka is required, if this machine cannot start one.
func needJava(t testing.TB) {
	t.Helper()
	missing := kafkaserver.MissingProgram()
	if missing == "" {
		return
	}
	if os.Getenv("FIRSTSEEN_REQUIRE_KAFKA") != "" {
		t.Fatalf("consumertest: FIRSTSEEN_REQUIRE_KAFKA is set and %s is not installed", missing)
	}
	t.Skipf("real Kafka needs %s, which is not installed", missing)
}
